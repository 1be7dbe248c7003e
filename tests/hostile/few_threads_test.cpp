// The system refuses threads, as a container with a limit of processes does. The others compute, a
// match does without the store, and threads are tried again later.
#include <gtest/gtest.h>
#ifndef _WIN32
#include <sys/resource.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <numeric>

#include "../support/sanitizers.h"
#include "matrix.h"

namespace hostile::few_threads_test {
namespace {

using memory::RefusalEverywhere;
using memory::Source;

// Keeps the lines of a cache about threads.
class Lines {
 public:
  const pkv_logger* logger() const { return &logger_; }
  size_t count() const {
    const std::lock_guard lock(mutex_);
    return static_cast<size_t>(std::count_if(lines_.begin(), lines_.end(), [](const auto& line) {
      return line.find("thread") != std::string::npos;
    }));
  }

 private:
  static void log(void* user, pkv_log_level, const char* message) {
    Lines& self = *static_cast<Lines*>(user);
    const std::lock_guard lock(self.mutex_);
    self.lines_.emplace_back(message);
  }

  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
  pkv_logger logger_{log, this};
};

// A cache whose steps have work for several threads.
struct Busy {
  static constexpr size_t sessions = 16;

  explicit Busy(uint32_t threads, const Lines* lines = nullptr) : session(sessions) {
    ModelConfig config = small_model(1024);
    config.threads = threads;
    if (lines != nullptr) config.logger = lines->logger();
    OK(pkv_cache_create(&config, &cache));
    for (pkv_session& each : session) OK(pkv_session_open(cache, nullptr, &each));
  }
  ~Busy() { pkv_cache_destroy(cache); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

  std::vector<float> run(uint32_t tokens, uint64_t seed) {
    return step(cache, session, std::vector<uint32_t>(sessions, tokens), seed);
  }
  // Copies the sessions to a file and back, which threads help with.
  void save_and_load() {
    std::vector<unsigned char> bytes(64 << 20);
    auto stream = made<pkv_stream>({.kind = PKV_STREAM_BUFFER});
    stream.data = bytes.data();
    stream.size = bytes.size();
    std::vector<pkv_file_item> items;
    for (pkv_session each : session) items.push_back({each, nullptr, 0});
    OK(pkv_file_save(cache, items.size(), items.data(), nullptr, &stream, &stream.size));
    std::vector<pkv_session> loaded(sessions);
    size_t count = 0;
    OK(pkv_file_load(cache, nullptr, &stream, loaded.size(), loaded.data(), nullptr, &count));
    for (pkv_session each : loaded) OK(pkv_session_close(each));
  }
  uint32_t threads() const {
    auto info = made<pkv_cache_info>();
    OK(pkv_cache_get_info(cache, &info));
    return info.threads;
  }

  pkv_cache cache = nullptr;
  std::vector<pkv_session> session;
};

// Steps compute the same on one thread.
void compute_without_threads(Busy& busy) {
  Busy alone(1);
  for (const uint32_t tokens : {200u, 1u, 1u})
    HOSTILE_CHECK(alone.run(tokens, tokens) == busy.run(tokens, tokens), "a step of %u tokens",
                  tokens);
  busy.save_and_load();
}

// AddressSanitizer has a pthread_create of its own, which refuses nothing.
#define SKIP_IF_NONE_IS_REFUSED() \
  if (pkv::test::address_sanitizer) GTEST_SKIP() << "no thread is refused here"

TEST(FewThreads, TheOthersDoTheWork) {
  SKIP_IF_NONE_IS_REFUSED();
  for (const int64_t first_refused : {1, 2, 3})
    EXPECT_EQ("", in_child([&] {
                Lines lines;
                Busy busy(3, &lines);
                bool struck = false;
                {
                  const RefusalEverywhere refusal(Source::threads, first_refused, false);
                  compute_without_threads(busy);
                  struck = refusal.struck();
                }
                HOSTILE_CHECK(struck || first_refused > 1 || busy.threads() == 1, "no thread");
                HOSTILE_CHECK(lines.count() == (struck ? 1u : 0u), "%zu lines", lines.count());
              }))
        << first_refused;
}

#ifdef __linux__
size_t threads_of_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

TEST(FewThreads, AreTriedAgain) {
  SKIP_IF_NONE_IS_REFUSED();
  EXPECT_EQ("", in_child([] {
              Busy busy(2);
              if (busy.threads() < 2) return;
              {
                const RefusalEverywhere refusal(Source::threads, 1, false);
                compute_without_threads(busy);
              }
              HOSTILE_CHECK(threads_of_process() == 1, "there are threads");
              const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(60);
              while (threads_of_process() == 1) {
                busy.run(1, 3);
                for (pkv_session each : busy.session) OK(pkv_session_trim(each, 0));
                HOSTILE_CHECK(std::chrono::steady_clock::now() < patience, "no thread came");
              }
              compute_without_threads(busy);
            }));
}

// The kernel refuses, and not this program.
TEST(FewThreads, ALimitOfTheSystemIsNoError) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may become another user";
  EXPECT_EQ("", in_child([] {
              Lines lines;
              Busy busy(2, &lines);
              if (busy.threads() < 2) return;
              const rlimit one{1, 1};
              HOSTILE_CHECK(setrlimit(RLIMIT_NPROC, &one) == 0 && setuid(54321) == 0, "%s",
                            std::strerror(errno));
              compute_without_threads(busy);
              HOSTILE_CHECK(lines.count() == 1, "%zu lines say so", lines.count());
            }));
}
#endif

TEST(FewThreads, AMatchDoesWithoutTheStore) {
  SKIP_IF_NONE_IS_REFUSED();
  EXPECT_EQ("", in_child([] {
              cache_test::MemoryStore items;
              Lines lines;
              const auto create = [&] {
                ModelConfig config = small_model(64);
                config.logger = lines.logger();
                auto prefix = made<pkv_prefix_config>();
                pkv_store table = items.table();
                auto store = made<pkv_store_config>({.store = &table});
                store.wait_ms = 60000;
                config.prefix = &prefix;
                config.store = &store;
                pkv_cache cache = nullptr;
                OK(pkv_cache_create(&config, &cache));
                return cache;
              };
              const std::vector<int32_t> text(40, 7);
              // Returns how many tokens were cached.
              const auto run = [&](pkv_cache cache) {
                pkv_session session = nullptr;
                uint64_t matched = 0;
                OK(pkv_session_open(cache, nullptr, &session));
                OK(pkv_session_admit(session, text.size(), text.data(), 0, &matched));
                step(cache, {session}, {static_cast<uint32_t>(text.size() - matched)}, 1);
                OK(pkv_session_set_tokens(session, 0, text.size(), text.data()));
                OK(pkv_session_close(session));
                return matched;
              };
              const pkv_cache writer = create();
              run(writer);
              OK(pkv_cache_destroy(writer));
              HOSTILE_CHECK(!items.items().empty(), "nothing was stored");
              const pkv_cache cache = create();
              {
                const RefusalEverywhere refusal(Source::threads, 1, false);
                HOSTILE_CHECK(run(cache) == 0 && refusal.struck(), "a thread came");
                OK(pkv_prefix_clear(cache, nullptr, PKV_ALL_SALTS));
                run(cache);
                OK(pkv_prefix_clear(cache, nullptr, PKV_ALL_SALTS));
              }
              HOSTILE_CHECK(lines.count() == 1, "%zu lines say so", lines.count());
              HOSTILE_CHECK(run(cache) == 32, "the thread was not tried again");
              OK(pkv_cache_destroy(cache));
            }));
}

// Without any thread, each function still does what it can do alone.
TEST(FewThreads, NoCallNeedsOne) {
  std::vector<std::function<void()>> bodies;
  for (const Function& function : all_rows())
    if (function.library == &pagedkv_library)
      bodies.push_back([&function] {
        const RefusalEverywhere refusal(Source::threads, 1, false);
        World world(PKV_STORAGE_INTERNAL, 2);
        const Values values = valid_values(function, world);
        expect(PKV_OK, function.tells_status ? function.call(values) : PKV_OK,
               function.name.c_str());
        if (function.undo) function.undo(world, values);
        world.validate();
        world.close();
      });
  for (const std::string& failed : in_children(bodies)) EXPECT_EQ("", failed);
}

}  // namespace
}  // namespace hostile::few_threads_test
