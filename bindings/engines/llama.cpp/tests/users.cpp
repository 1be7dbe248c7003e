// Many users in a memory that is too small for them: conversations with common beginnings,
// interleaved, in a process that is killed again and again and continues with its store. No token
// may be wrong, and no byte may be over max_bytes.
//
//   llama-users [REQUESTS [USERS [KIND...]]]       PKV_SEED: the first of the random numbers
//
// Memory is what malloc has given out, besides that of this program itself. While a call copies a
// state, it may have as much more.
#include "users.h"

#include <malloc.h>
#include <pagedkv/store.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <thread>

#include "../../../../tests/support/made.h"
#include "../../../../tests/support/rounds.h"
#include "../recall/pagedkv-llama.h"

namespace {

#define CHECK(good)                                                                         \
  if (!(good)) {                                                                            \
    std::printf("%s:%d: not %s (%s)\n", __FILE__, __LINE__, #good, pkv_llama_last_error()); \
    std::exit(1);                                                                           \
  }

constexpr uint32_t block_size = 16, most_users = 1000;
const uint64_t max_bytes = bytes_for_users;

// What survives a kill.
struct Shared {
  std::atomic<uint64_t> requests, asked, found, cached, wrong, over, kept_nothing;
  std::atomic<uint64_t> most_bytes, most_resident;
  uint32_t turns[most_users];
};
Shared* shared;

uint64_t in_use() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

uint64_t resident() {
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  unsigned long long pages = 0;
  if (file == nullptr || std::fscanf(file, "%*s %llu", &pages) != 1) pages = 0;
  if (file != nullptr) std::fclose(file);
  return pages * static_cast<uint64_t>(getpagesize());
}

void raise_to(std::atomic<uint64_t>& to, uint64_t value) {
  if (value > to) to = value;
}

uint64_t before_open = 0;

void check_memory(uint64_t more) {
  const uint64_t now = in_use(), bytes = now > before_open ? now - before_open : 0;
  if (more == 0) raise_to(shared->most_bytes, bytes);
  if (bytes > max_bytes + more) shared->over++;
}

uint32_t number(uint32_t user, uint32_t turn, uint32_t what, uint32_t n) {
  std::minstd_rand bits(user * 7919 + turn * 104729 + what * 31 + 1);
  bits.discard(3);
  return static_cast<uint32_t>(bits() % n);
}

// Appends the message of a user. A conversation begins with one of five prompts, and is given up
// after some turns.
constexpr uint32_t turns_per_conversation = 8;

void append_message(Text& text, uint32_t user, uint32_t turn) {
  if (turn % turns_per_conversation == 0) {
    text.clear();
    for (uint32_t i = 0; i < 160; i++)
      text.push_back(static_cast<int32_t>(number(user % 5, 0, 100 + i, 1000)));
  }
  const uint32_t n = 10 + number(user, turn, 1, 40);
  for (uint32_t i = 0; i < n; i++)
    text.push_back(static_cast<int32_t>(number(user, turn, 10 + i, 1000)));
}

uint32_t reply_length(uint32_t user, uint32_t turn) { return 5 + number(user, turn, 2, 40); }

int32_t reply(uint32_t user, uint32_t turn, uint32_t i) {
  return static_cast<int32_t>(number(user, turn, 1000 + i, 1000));
}

// What was said before a turn.
void say_again(Text& text, uint32_t user, uint32_t turn) {
  text.clear();
  for (uint32_t t = turn / turns_per_conversation * turns_per_conversation; t < turn; t++) {
    append_message(text, user, t);
    for (uint32_t i = 0; i < reply_length(user, t); i++) text.push_back(reply(user, t, i));
  }
}

// One life of the process.
class Server {
 public:
  Server(const std::string& kind, const std::string& directory) : engine_(make_engine(kind)) {
    text_.reserve(2 * Engine::longest);
    auto at = made<pkv_directory_config>();
    at.path = directory.c_str();
    auto store = made<pkv_store>();
    if (!directory.empty()) CHECK(pkv_store_open_directory(&at, &store) == PKV_OK);
    auto config = made<pkv_llama_config>();
    config.context = engine_->context();
    config.block_size = block_size;
    config.max_bytes = max_bytes;
    if (!directory.empty()) config.store = &store;
    malloc_trim(0);
    before_open = in_use(), resident_ = resident();
    CHECK(pkv_llama_open(&config, &llama_) == PKV_OK);
    ends_ = stats().end_bytes > 0;
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server() { CHECK(pkv_llama_close(llama_) == PKV_OK); }

  void serve(uint32_t user, int32_t sequence) {
    const uint32_t turn = shared->turns[user];
    say_again(text_, user, turn);
    append_message(text_, user, turn);
    const std::string salt = "tenant " + std::to_string(user % 3);

    engine_->clear(sequence);
    uint64_t known = 0;
    const pkv_prompt prompt = prompt_of(text_.size() - 1, salt);
    CHECK(pkv_llama_recall(llama_, sequence, &prompt, &known) == PKV_OK);
    shared->asked += prompt.n, shared->found += known;
    if (!engine_->has(sequence, {text_.data(), known})) shared->wrong++;

    const uint64_t end = (text_.size() - 1) / block_size * block_size;
    if (ends_ && end > known)
      decode(sequence, known, end), remember(sequence, end, salt), known = end;
    decode(sequence, known, text_.size());
    for (uint32_t i = 0; i < reply_length(user, turn); i++) {
      text_.push_back(reply(user, turn, i));
      decode(sequence, text_.size() - 1, text_.size());
    }
    if (!engine_->is_right(sequence, text_)) shared->wrong++;
    if (!ends_) remember(sequence, text_.size(), salt);
    check_memory(0);
    raise_to(shared->most_resident, resident() - std::min(resident(), resident_));
    shared->turns[user]++, shared->requests++;
    raise_to(shared->cached, stats().cached_tokens);
  }

 private:
  pkv_prompt prompt_of(uint64_t n, const std::string& salt) const {
    return {sizeof(pkv_prompt), 0, salt.data(), salt.size(), text_.data(), n};
  }
  void decode(int32_t sequence, uint64_t first, uint64_t end) {
    engine_->decode(sequence, {text_.data(), end}, first);
  }
  pkv_llama_stats stats() const {
    auto stats = made<pkv_llama_stats>();
    CHECK(pkv_llama_get_stats(llama_, &stats) == PKV_OK);
    return stats;
  }
  void remember(int32_t sequence, uint64_t n, const std::string& salt) {
    const pkv_prompt prompt = prompt_of(n, salt);
    const pkv_status status = pkv_llama_remember(llama_, sequence, &prompt);
    CHECK(status == PKV_OK || status == PKV_OUT_OF_BLOCKS);
    shared->kept_nothing += status != PKV_OK;
  }

  const std::unique_ptr<Engine> engine_;
  bool ends_ = false;
  pkv_llama llama_ = nullptr;
  Text text_;
  uint64_t resident_ = 0;
};

// Serves requests until it is killed, at some moment after some requests, or all are served.
void live(const std::string& kind, const std::string& directory, uint64_t requests, uint32_t users,
          uint64_t seed) {
  std::mt19937_64 random(seed);
  Server server(kind, directory);
  const uint64_t few = std::clamp<uint64_t>(requests / 2, 1, 200);
  const uint64_t last = shared->requests + few / 10 + random() % few;
  std::thread killer;
  while (shared->requests < requests) {
    if (shared->requests >= last && !killer.joinable())
      killer = std::thread([delay = random() % 20000] {
        std::this_thread::sleep_for(std::chrono::microseconds(delay));
        std::raise(SIGKILL);
      });
    server.serve(static_cast<uint32_t>(random() % users),
                 static_cast<int32_t>(random() % Engine::sequences));
  }
  if (killer.joinable()) killer.join();
}

void run(const std::string& kind, bool with_store, uint64_t requests, uint32_t users,
         uint64_t seed) {
  std::memset(static_cast<void*>(shared), 0, sizeof *shared);
  const auto folder = std::filesystem::temp_directory_path() /
                      ("llama-users-" + std::to_string(getpid()) + "-" + kind);
  std::filesystem::remove_all(folder);
  int kills = 0;
  while (shared->requests < requests) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      live(kind, with_store ? folder.string() : "", requests, users,
           seed + static_cast<uint64_t>(kills));
      std::fflush(stdout);
      _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
      kills++;
      continue;
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  std::filesystem::remove_all(folder);
  const auto llu = [](uint64_t n) { return static_cast<unsigned long long>(n); };
  std::printf(
      "%s, %s store: %llu requests of %u users, %d kills: %llu wrong tokens, %llu times over; %llu "
      "of %llu "
      "tokens were known, at most %llu were cached; at most %llu of %llu bytes in use, %llu more "
      "resident; %llu times nothing was kept\n",
      kind.c_str(), with_store ? "a" : "no", llu(shared->requests), users, kills,
      llu(shared->wrong), llu(shared->over), llu(shared->found), llu(shared->asked),
      llu(shared->cached), llu(shared->most_bytes), llu(max_bytes), llu(shared->most_resident),
      llu(shared->kept_nothing));
  std::fflush(stdout);
  CHECK(shared->wrong == 0 && shared->over == 0);
  CHECK(shared->found > 0);
}

}  // namespace

// The state, and what is written down of its cells.
void check_memory_with_state(size_t bytes) { check_memory(bytes + uint64_t{64} * Engine::longest); }

int main(int argc, char** argv) {
  const uint64_t requests = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 400;
  const auto users = static_cast<uint32_t>(argc > 2 ? std::atoi(argv[2]) : 50);
  CHECK(users > 0 && users <= most_users);
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  shared = static_cast<Shared*>(memory);
  const std::vector<std::string> chosen(argv + std::min(argc, 3), argv + argc);
  const uint64_t seed = pkv::test::number_in("PKV_SEED", 60);
  for (const std::string& kind : chosen.empty() ? engine_kinds() : chosen)
    for (const bool with_store : {true, false}) run(kind, with_store, requests, users, seed);
}
