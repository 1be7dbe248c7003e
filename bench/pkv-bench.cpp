// Benchmarks through the C interface. Each reports the counter `ratio`: what was measured over its limit or peer, both taken in this
// run. See README.md for the meaning of each name.
#include <benchmark/benchmark.h>
#include <pagedkv/pagedkv.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

void check(pkv_status status) {
  if (status == PKV_OK) return;
  std::fprintf(stderr, "%s: %s\n", pkv_status_string(status), pkv_last_error());
  std::exit(1);
}

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Bytes per second of all processors reading their share of a buffer far larger than the last-level cache.
double read_limit() {
  static const double limit = [] {
    const size_t words = (size_t{1} << 30) / sizeof(uint64_t);
    std::vector<uint64_t> buffer(words, 1);
    const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
    double best = 0;
    for (int round = 0; round < 5; round++) {
      const auto begin = Clock::now();
      std::vector<std::thread> workers;
      for (unsigned t = 0; t < threads; t++)
        workers.emplace_back([&, t] {
          uint64_t sums[8] = {};
          const size_t first = words / threads * t / 8 * 8, last = words / threads * (t + 1) / 8 * 8;
          for (size_t i = first; i < last; i += 8)
            for (size_t j = 0; j < 8; j++) sums[j] += buffer[i + j];
          for (const uint64_t sum : sums) benchmark::DoNotOptimize(sum);
        });
      for (std::thread& worker : workers) worker.join();
      best = std::max(best, static_cast<double>(words * sizeof(uint64_t)) / seconds_since(begin));
    }
    return best;
  }();
  return limit;
}

struct Geometry {
  pkv_dtype dtype = PKV_BF16;
  uint32_t query_heads = 32, kv_heads = 8, dim = 128;
  uint32_t sessions = 8, tokens = 4096;
  uint64_t kv_bytes() const { return uint64_t{2} * sessions * tokens * kv_heads * dim * (dtype == PKV_F32 ? 4 : 2); }
};

// A one-layer cache whose sessions are filled with random rows.
class Filled {
 public:
  explicit Filled(const Geometry& geometry) : geometry_(geometry), sessions_(geometry.sessions) {
    pkv_cache_config config;
    check(pkv_cache_config_init(&config, sizeof config));
    config.layers = 1;
    config.query_heads = geometry.query_heads;
    config.kv_heads = geometry.kv_heads;
    config.key_dim = geometry.dim;
    config.dtype = geometry.dtype;
    config.blocks = uint64_t{geometry.sessions} * (geometry.tokens / 16 + 8);
    config.prefault = 1;
    check(pkv_cache_create(&config, &cache_));
    std::vector<float> rows(size_t{geometry.tokens} * geometry.kv_heads * geometry.dim);
    for (size_t i = 0; i < rows.size(); i++) rows[i] = static_cast<float>(i * 2654435761u % 1000) / 500 - 1;
    const pkv_tensor tensor = {rows.data(), PKV_F32, 0, 0, 0};
    for (pkv_session& session : sessions_) {
      check(pkv_session_open(cache_, nullptr, &session));
      check(pkv_session_prefill(session, 0, geometry.tokens, &tensor, &tensor));
    }
  }
  ~Filled() { check(pkv_cache_destroy(cache_)); }
  Filled(const Filled&) = delete;
  Filled& operator=(const Filled&) = delete;

  pkv_batch begin(uint32_t new_tokens) {
    const std::vector<uint32_t> counts(sessions_.size(), new_tokens);
    pkv_batch batch;
    check(pkv_batch_begin(cache_, sessions_.size(), sessions_.data(), counts.data(), nullptr, &batch));
    return batch;
  }
  const std::vector<pkv_session>& sessions() const { return sessions_; }

 private:
  const Geometry geometry_;
  pkv_cache cache_ = nullptr;
  std::vector<pkv_session> sessions_;
};

// One decode step's attention of all sessions, over the time to read their K and V at the read limit.
void decode(benchmark::State& state, pkv_dtype dtype) {
  Geometry geometry;
  geometry.dtype = dtype;
  Filled filled(geometry);
  const pkv_batch batch = filled.begin(1);
  std::vector<float> kv(size_t{geometry.sessions} * geometry.kv_heads * geometry.dim, 0.5f);
  std::vector<float> q(size_t{geometry.sessions} * geometry.query_heads * geometry.dim, 0.1f), out(q.size());
  const pkv_tensor kv_rows = {kv.data(), PKV_F32, 0, 0, 0}, q_rows = {q.data(), PKV_F32, 0, 0, 0}, out_rows = {out.data(), PKV_F32, 0, 0, 0};
  check(pkv_batch_write(batch, 0, &kv_rows, &kv_rows));
  const double limit = read_limit();
  const auto begin = Clock::now();
  for (auto _ : state) check(pkv_batch_attend(batch, 0, nullptr, &q_rows, &out_rows));
  const double rate = static_cast<double>(geometry.kv_bytes()) * static_cast<double>(state.iterations()) / seconds_since(begin);
  state.counters["GB/s"] = rate / 1e9;
  state.counters["read_GB/s"] = limit / 1e9;
  state.counters["ratio"] = rate / limit;
  check(pkv_batch_abort(batch));
}

// begin + commit of 256 sessions without K, V or attention, against 25 microseconds.
void step_overhead(benchmark::State& state) {
  constexpr size_t count = 256;
  pkv_cache_config config;
  check(pkv_cache_config_init(&config, sizeof config));
  config.storage = PKV_STORAGE_NONE;
  config.layers = 32;
  config.query_heads = config.kv_heads = 8;
  config.key_dim = 128;
  config.blocks = 1 << 20;
  pkv_cache cache;
  check(pkv_cache_create(&config, &cache));
  std::vector<pkv_session> sessions(count);
  for (pkv_session& session : sessions) check(pkv_session_open(cache, nullptr, &session));
  const std::vector<uint32_t> ones(count, 1);
  const std::vector<int32_t> tokens(count, 7);
  const auto begin = Clock::now();
  for (auto _ : state) {
    pkv_batch batch;
    check(pkv_batch_begin(cache, count, sessions.data(), ones.data(), nullptr, &batch));
    check(pkv_batch_commit(batch, tokens.data()));
    uint64_t length;
    check(pkv_session_length(sessions[0], &length));
    if (length == 50000)
      for (const pkv_session session : sessions) check(pkv_session_trim(session, 0));
  }
  const double microseconds = seconds_since(begin) * 1e6 / static_cast<double>(state.iterations());
  state.counters["us"] = microseconds;
  state.counters["ratio"] = 25 / microseconds;
  check(pkv_cache_destroy(cache));
}

// Fork and close of a 32k-token session, against 20 microseconds.
void fork_session(benchmark::State& state) {
  Geometry geometry;
  geometry.sessions = 1;
  geometry.tokens = 32768;
  Filled filled(geometry);
  const auto begin = Clock::now();
  for (auto _ : state) {
    pkv_session child;
    check(pkv_session_fork(filled.sessions()[0], &child));
    check(pkv_session_close(child));
  }
  const double microseconds = seconds_since(begin) * 1e6 / static_cast<double>(state.iterations());
  state.counters["us"] = microseconds;
  state.counters["ratio"] = 20 / microseconds;
}

// One id taken and given back on every thread, against a mutex and a vector used alike by as many threads.
template <class Step>
double ids_per_second(unsigned threads, const Step& step) {
  constexpr size_t rounds = 400000;
  const auto begin = Clock::now();
  std::vector<std::thread> workers;
  for (unsigned t = 0; t < threads; t++)
    workers.emplace_back([&] {
      for (size_t i = 0; i < rounds; i++) step();
    });
  for (std::thread& worker : workers) worker.join();
  return static_cast<double>(rounds * threads) / seconds_since(begin);
}

void pool_single(benchmark::State& state) {
  const unsigned threads = static_cast<unsigned>(state.range(0));
  pkv_pool_config config;
  check(pkv_pool_config_init(&config, sizeof config));
  config.blocks = 65536;
  pkv_pool pool;
  check(pkv_pool_create(&config, &pool));
  std::mutex mutex;
  std::vector<uint32_t> free(65536);
  double ours = 0, peer = 0;
  for (auto _ : state) {
    ours += ids_per_second(threads, [&] {
      pkv_block block;
      check(pkv_pool_alloc(pool, 1, &block));
      check(pkv_pool_release(pool, 1, &block));
    });
    peer += ids_per_second(threads, [&] {
      mutex.lock();
      const uint32_t id = free.back();
      free.pop_back();
      mutex.unlock();
      benchmark::DoNotOptimize(id);
      const std::lock_guard lock(mutex);
      free.push_back(id);
    });
  }
  state.counters["M_ids/s"] = ours / 1e6 / static_cast<double>(state.iterations());
  state.counters["ratio"] = ours / peer;
  check(pkv_pool_destroy(pool));
}

BENCHMARK_CAPTURE(decode, f32, PKV_F32)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(decode, f16, PKV_F16)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(decode, bf16, PKV_BF16)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(step_overhead)->Name("step/overhead")->UseRealTime();
BENCHMARK(fork_session)->Name("fork")->UseRealTime();
BENCHMARK(pool_single)->Name("pool/single")->Arg(1)->Arg(2)->Arg(32)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
