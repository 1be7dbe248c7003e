// Calls fork() at random moments while other threads are in the middle of every kind of call:
// fork_storm RUNS. Each child closes what it inherited from two threads at once, makes objects of
// its own and calls the functions that need no handles. Exits with 0, or with a sentence.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <set>
#include <thread>

#include "../support/memory_store.h"
#include "../support/source.h"
#include "world.h"

using namespace hostile;

// The address sanitizer keeps freed memory in a list whose lock its fork handler does not take
// (LLVM 19). A child that is forked while another thread has the lock would wait for it forever, so
// the list is disabled here.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "quarantine_size_mb=0"; }

namespace {

constexpr uint32_t prompt = 40;

std::vector<int32_t> text(uint32_t name) {
  std::vector<int32_t> tokens(prompt);
  for (uint32_t i = 0; i < prompt; i++) tokens[i] = static_cast<int32_t>(name * 1000 + i);
  return tokens;
}

pkv_pool make_pool() {
  auto config = made<pkv_pool_config>({.blocks = 64});
  pkv_pool pool = nullptr;
  OK(pkv_pool_create(&config, &pool));
  return pool;
}

pkv_compute make_compute() {
  auto config = made<pkv_compute_config>({.threads = 2});
  pkv_compute compute = nullptr;
  OK(pkv_compute_create(&config, &compute));
  return compute;
}

// A cache with an index and a store behind it, and one of each object that it hands out.
struct House {
  House(const Place& place, uint32_t threads) {
    ModelConfig config = small_model(256);
    config.memory_directory = place.directory;
    auto prefix = made<pkv_prefix_config>();
    auto store_config = made<pkv_store_config>();
    table = store.table();
    store_config.store = &table;
    config.prefix = &prefix;
    config.store = &store_config;
    config.threads = threads;
    OK(pkv_cache_create(&config, &cache));
    OK(pkv_session_open(cache, nullptr, &session));
    run(session, text(0));
    OK(pkv_session_open(cache, nullptr, &stepping));
    const uint32_t one = 1;
    OK(pkv_batch_begin(cache, 1, &stepping, &one, &batch));
    OK(pkv_snapshot_take(session, &snapshot));
    pool = make_pool();
    compute = make_compute();
  }

  // Runs a step over a whole text, whose tokens go to the index.
  void run(pkv_session target, const std::vector<int32_t>& tokens) const {
    const auto n = static_cast<uint32_t>(tokens.size());
    pkv_batch step = nullptr;
    OK(pkv_batch_begin(cache, 1, &target, &n, &step));
    const std::vector<float> kv = numbers(n * kv_floats, 1), q = numbers(n * q_floats, 2);
    std::vector<float> out(n * q_floats);
    const pkv_tensor rows = tensor(kv.data()), queries = tensor(q.data()),
                     results = tensor(out.data());
    for (uint32_t layer = 0; layer < layers; layer++) {
      OK(pkv_batch_write(step, layer, &rows, &rows));
      OK(pkv_batch_attend(step, layer, nullptr, &queries, &results, nullptr));
    }
    OK(pkv_batch_commit(step, n, tokens.data()));
  }

  cache_test::MemoryStore store;
  pkv_store table = made<pkv_store>();
  pkv_cache cache = nullptr;
  pkv_session session = nullptr, stepping = nullptr;
  pkv_batch batch = nullptr;
  pkv_snapshot snapshot = nullptr;
  pkv_pool pool = nullptr;
  pkv_compute compute = nullptr;
};

// Computes attention over the caller's memory, by two threads. Returns the results.
std::vector<float> attend_alone(pkv_compute compute) {
  constexpr uint32_t rows = 64;
  static std::vector<float> kv = numbers(rows * kv_floats, 3);
  static const std::vector<float> q = numbers(2 * q_floats, 4);
  auto view = made<pkv_kv_view>({.layout = PKV_LAYOUT_PLAIN,
                                 .block_size = rows,
                                 .kv_heads = kv_heads,
                                 .key_dim = dim,
                                 .value_dim = dim,
                                 .dtype = PKV_F32,
                                 .blocks = 1});
  view.k = view.v = kv.data();
  view.k_row_stride = view.v_row_stride = kv_floats;
  view.k_head_stride = view.v_head_stride = dim;
  const std::vector<uint32_t> queries{1, 1}, tables{0, 0};
  const std::vector<uint64_t> lengths{rows, rows / 2};
  auto sequences = sequences_of(query_heads, queries, lengths, tables);
  std::vector<float> out(2 * q_floats);
  const pkv_tensor q_rows = tensor(q.data()), out_rows = tensor(out.data());
  OK(pkv_kv_attend(compute, &view, &sequences, nullptr, &q_rows, &out_rows, nullptr));
  return out;
}

// ---- Other threads during a fork ----------------------------------------------------------

void play_sessions(const House& house, uint32_t seed) {
  pkv_session session = nullptr, child = nullptr;
  OK(pkv_session_open(house.cache, nullptr, &session));
  const std::vector<int32_t> tokens = text(1 + seed % 5);
  uint64_t matched = 0;
  OK(pkv_session_admit(session, tokens.size(), tokens.data(), 0, &matched));
  if (matched < tokens.size())
    house.run(session, {tokens.begin() + static_cast<int64_t>(matched), tokens.end()});
  OK(pkv_session_fork(session, &child));
  OK(pkv_session_trim(child, 10));
  OK(pkv_session_suspend(child));
  uint64_t length = 0, total = 0;
  OK(pkv_session_resume(child, &length, &total));
  OK(pkv_session_close(child));
  OK(pkv_session_close(session));
}

void play_files(const House& house) {
  static thread_local std::vector<unsigned char> bytes(1 << 20);
  auto stream = buffer_stream(bytes.data(), bytes.size());
  auto config = made<pkv_file_config>({.prefix_index = 1});
  const pkv_file_item item = {nullptr, house.snapshot, 1};
  uint64_t size = 0;
  OK(pkv_file_save(house.cache, 1, &item, &config, &stream, &size));
  stream.size = size;
  pkv_session loaded = nullptr;
  size_t count = 0;
  if (pkv_file_load(house.cache, &config, &stream, 1, &loaded, nullptr, &count) == PKV_OK)
    OK(pkv_session_close(loaded));
}

void play_caches(const Place& place) {
  ModelConfig config = small_model(8);
  config.memory_directory = place.directory;
  config.threads = 2;
  pkv_cache cache = nullptr;
  OK(pkv_cache_create(&config, &cache));
  std::array<pkv_session, 40> sessions{};
  for (pkv_session& session : sessions) OK(pkv_session_open(cache, nullptr, &session));
  OK(pkv_cache_destroy(cache));
}

void play_pools(const House& house) {
  pkv_block_ref blocks[16];
  OK(pkv_pool_alloc(house.pool, 16, blocks));
  OK(pkv_pool_release(house.pool, 16, blocks));
  OK(pkv_pool_destroy(make_pool()));
}

void play_looks(const House& house) {
  stats_of(house.cache);
  size_t size = 0;
  pkv_cache_format_metrics(house.cache, 0, nullptr, &size);
  const std::vector<int32_t> tokens = text(1);
  uint64_t hashes[2], cached = 0;
  OK(pkv_prefix_hash_blocks(TextArg(tokens), block_size, hashes));
  const auto prefetch = made<pkv_hint>({.action = PKV_HINT_PREFETCH, .end = PKV_TO_END});
  OK(pkv_hint_prompt(house.cache, TextArg(tokens), &prefetch, nullptr));
  OK(pkv_prefetch_wait(house.cache, TextArg(tokens), 1, &cached, nullptr));
  OK(pkv_prefix_clear(house.cache, nullptr, PKV_ALL_SALTS));
}

// ---- The child ------------------------------------------------------------------------

// Two threads close the same handle. One of them succeeds, and the other gets STALE_HANDLE.
template <class Handle>
void close_twice(pkv_status (*close)(Handle), Handle handle) {
  pkv_status statuses[2];
  std::thread other([&] { statuses[1] = close(handle); });
  statuses[0] = close(handle);
  other.join();
  std::sort(statuses, statuses + 2);
  HOSTILE_CHECK(
      statuses[0] == PKV_OK && (statuses[1] == PKV_STALE_HANDLE || statuses[1] == PKV_BUSY),
      "two closes: %d and %d", static_cast<int>(statuses[0]), static_cast<int>(statuses[1]));
}

void check_child(const House& inherited, const std::vector<float>& expected, bool children_first) {
  uint64_t length = 0;
  WANT(PKV_WRONG_PROCESS, pkv_session_get_length(inherited.session, &length));
  if (children_first) {
    close_twice(pkv_batch_abort, inherited.batch);
    close_twice(pkv_session_close, inherited.stepping);
    close_twice(pkv_snapshot_close, inherited.snapshot);
    close_twice(pkv_session_close, inherited.session);
  }
  close_twice(pkv_pool_destroy, inherited.pool);
  close_twice(pkv_compute_destroy, inherited.compute);
  close_twice(pkv_cache_destroy, inherited.cache);
  // All new handles differ. A slot that was freed twice would be given out twice.
  std::set<pkv_pool> pools;
  for (int i = 0; i < 40; i++) {
    const pkv_pool pool = make_pool();
    HOSTILE_CHECK(pools.insert(pool).second, "two pools have the handle %p",
                  static_cast<void*>(pool));
  }
  for (const pkv_pool pool : pools) OK(pkv_pool_destroy(pool));
  HOSTILE_CHECK(attend_alone(nullptr) == expected, "other numbers in the child");
  House own(PKV_STORAGE_INTERNAL, 2);
  play_sessions(own, 1);
  play_files(own);
  play_looks(own);
  OK(pkv_cache_validate(own.cache));
  OK(pkv_cache_destroy(own.cache));
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t runs = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 40;
  // Its memory is shared with the children, who must not change it.
  const House house(in_file, 2);
  const std::vector<float> expected = attend_alone(nullptr);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> calls{0};
  std::vector<std::thread> others;
  const std::vector<std::function<void()>> plays = {
      [&] { play_sessions(house, static_cast<uint32_t>(calls.load())); },
      [&] { play_files(house); },
      [] { play_caches(PKV_STORAGE_INTERNAL); },
      [] { play_caches(in_file); },
      [&] { play_pools(house); },
      [&] { play_looks(house); },
      [&] {
        attend_alone(nullptr);
        attend_alone(house.compute);
        OK(pkv_compute_destroy(make_compute()));
      }};
  std::atomic<bool> failed{false};
  for (const auto& play : plays)
    others.emplace_back([&stop, &calls, &failed, &play] {
      try {
        for (; !stop; calls++) play();
      } catch (const std::exception& error) {
        if (!failed.exchange(true))
          std::fprintf(stderr, "fork_storm: a thread of the parent: %s\n", error.what());
      }
    });
  Source random(7);
  uint64_t done = 0;
  for (; done < runs && !failed; done++) {
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(2000)));
    const std::string sentence = in_child([&] { check_child(house, expected, done % 2 == 0); }, 60);
    if (sentence.empty()) continue;
    std::fprintf(stderr, "fork_storm: child %llu: %s\n", static_cast<unsigned long long>(done),
                 sentence.c_str());
    failed = true;
  }
  stop = true;
  for (std::thread& other : others) other.join();
  if (failed) return 1;
  OK(pkv_cache_validate(house.cache));
  std::printf(
      "%llu children of a process in %llu rounds of calls: all of them closed, began anew and "
      "computed\n",
      static_cast<unsigned long long>(done), static_cast<unsigned long long>(calls.load()));
  return 0;
}
