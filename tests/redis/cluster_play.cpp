#include "cluster_play.h"

#include <fcntl.h>
#include <pagedkv/redis.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <random>
#include <thread>

#include "../support/cache.h"
#include "../support/hints.h"
#include "../support/rows.h"

namespace redis_test {

namespace {

using namespace cache_test;
using Clock = std::chrono::steady_clock;
using Text = std::vector<int32_t>;

constexpr Model model{2, 1, 1, 16};

// The keys or values of a text from token `from` on. Those of a token follow from all tokens up to
// it, as a model's would.
Rows rows_of_text(const Text& text, uint32_t which, size_t from) {
  Rows result(text.size() - from, model.kv_heads, model.key_dim);
  uint64_t hash = 0x9E3779B97F4A7C15u * (which + 1);
  for (size_t i = 0; i < text.size(); i++) {
    hash = (hash ^ static_cast<uint64_t>(text[i])) * 0xD6E8FEB86659FD93u;
    hash ^= hash >> 32;
    for (uint32_t d = 0; d < model.key_dim && i >= from; d++)
      result.set(i - from, 0, d, static_cast<float>((hash >> d) & 0xFFFF));
  }
  return result;
}

// Returns one of 240 texts; each 10 of them share their first half. All processes have the same
// texts.
Text draw_text(std::mt19937_64& random) {
  const auto begin = static_cast<int32_t>(random() % 24), end = static_cast<int32_t>(random() % 10);
  Text text(128);
  for (int32_t i = 0; i < 128; i++) text[i] = i < 64 ? begin * 1000 + i : 100'000 + end * 1000 + i;
  return text;
}

Cache make_cache(const std::string& addresses) {
  auto redis = made<pkv_redis_config>({.servers = addresses.c_str(), .connect_later = 1});
  pkv_store table = made<pkv_store>();
  CHECK(pkv_redis_open(&redis, &table));
  auto store_config = made<pkv_store_config>({.store = &table});
  auto prefix = made<pkv_prefix_config>();
  // Room for a fifth of all blocks.
  ModelConfig config = config_of(model, 200);
  config.prefix = &prefix;
  config.store = &store_config;
  config.threads = 1;
  return create(config);
}

bool holds(pkv_session session, const Text& text) {
  const uint64_t length = length_of(session);
  for (uint32_t layer = 0; layer < model.layers; layer++) {
    const KeysValues found = materialize(session, layer, model, 0, length);
    if (!(found.k == rows_of_text(text, layer, 0).slice(0, length)) ||
        !(found.v == rows_of_text(text, layer + model.layers, 0).slice(0, length)))
      return false;
  }
  return true;
}

// Serves a text as an engine would. Adds to the figures.
void serve(pkv_cache cache, const Text& text, PlayFigures& figures) {
  uint64_t cached = 0, matched = 0;
  cache_test::prefetch(cache, text);
  CHECK(pkv_prefetch_wait(cache, TextArg(text), 50, &cached, nullptr));
  Session session = open(cache);
  CHECK(pkv_session_admit(session, text.size(), text.data(), 0, &matched));
  bool right = holds(session, text);
  const auto rest = static_cast<uint32_t>(text.size() - matched);
  if (rest > 0) {
    const auto start = Clock::now();
    cache_test::Batch batch = begin(cache, {session}, {rest});
    for (uint32_t layer = 0; layer < model.layers; layer++) {
      Rows k = rows_of_text(text, layer, matched);
      Rows v = rows_of_text(text, layer + model.layers, matched);
      write(batch, layer, k, v);
    }
    commit(batch, std::span(text).subspan(matched));
    figures.longest_step =
        std::max(figures.longest_step, std::chrono::duration<double>(Clock::now() - start).count());
    right = right && holds(session, text);
  }
  figures.texts++;
  figures.wrong += !right;
  figures.tokens += text.size();
  figures.found += matched;
}

bool is_closed(int pipe) {
  pollfd state{pipe, POLLIN, 0};
  return poll(&state, 1, 0) > 0;
}

PlayFigures play(const std::string& addresses, size_t threads, uint64_t seed, int stop) {
  Cache cache = make_cache(addresses);
  PlayFigures all;
  std::mutex mutex;
  std::vector<std::thread> running;
  for (size_t t = 0; t < threads; t++)
    running.emplace_back([&, t] {
      std::mt19937_64 random(seed * 100 + t);
      PlayFigures figures;
      while (!is_closed(stop)) {
        serve(cache, draw_text(random), figures);
        // Leaves CPUs for the servers.
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      const std::lock_guard lock(mutex);
      all.add(figures);
    });
  for (std::thread& thread : running) thread.join();
  CHECK(pkv_cache_validate(cache));
  pkv_store_stats stats{};
  stats.struct_size = sizeof stats;
  CHECK(pkv_cache_get_store_stats(cache, &stats));
  all.written = stats.written_items;
  all.asked = stats.asked_items;
  all.read = stats.read_items;
  all.corrupt = stats.corrupt_items;
  all.failures = stats.failures;
  return all;
}

}  // namespace

void PlayFigures::add(const PlayFigures& other) {
  texts += other.texts, wrong += other.wrong, tokens += other.tokens, found += other.found;
  written += other.written, asked += other.asked, read += other.read;
  corrupt += other.corrupt, failures += other.failures;
  longest_step = std::max(longest_step, other.longest_step);
}

ClusterPlay::ClusterPlay(const std::string& addresses, size_t processes, size_t threads,
                         uint64_t seed) {
  const pid_t parent = getpid();
  for (size_t p = 0; p < processes; p++) {
    int stop[2], figures[2];
    // Servers that are started later must not keep the pipes open.
    if (pipe2(stop, O_CLOEXEC) != 0 || pipe2(figures, O_CLOEXEC) != 0)
      throw std::runtime_error("no pipe");
    std::fflush(nullptr);
    const pid_t id = ::fork();
    if (id == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      close(stop[1]);
      for (const Process& other : processes_) close(other.stop);
      int status = 1;
      try {
        const PlayFigures done = play(addresses, threads, seed * 100 + p, stop[0]);
        status = ::write(figures[1], &done, sizeof done) != sizeof done;
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
      }
      _exit(status);
    }
    close(stop[0]);
    close(figures[1]);
    processes_.push_back({id, stop[1], figures[0]});
  }
}

ClusterPlay::~ClusterPlay() { finish(); }

PlayFigures ClusterPlay::finish() {
  PlayFigures all;
  for (const Process& process : processes_) close(process.stop);
  for (const Process& process : processes_) {
    PlayFigures figures;
    if (read(process.figures, &figures, sizeof figures) != sizeof figures) figures.wrong = 1;
    close(process.figures);
    int status = 1;
    waitpid(process.id, &status, 0);
    figures.wrong += status != 0;
    all.add(figures);
  }
  processes_.clear();
  return all;
}

}  // namespace redis_test
