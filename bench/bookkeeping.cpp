// Measures what is not attention: steps, forks, snapshots and the pool.
#include <algorithm>
#include <mutex>
#include <set>
#include <thread>

#include "fixture.h"
#include "peaks.h"

namespace pkv::bench {

namespace {

void report_microseconds(benchmark::State& state, double seconds, double aim) {
  const double microseconds = seconds * 1e6;
  state.counters["us"] = microseconds;
  state.counters["ratio"] = aim / microseconds;
}

std::vector<pkv_session> open_sessions(pkv_cache cache, size_t count) {
  std::vector<pkv_session> sessions(count);
  for (pkv_session& session : sessions) check(pkv_session_open(cache, nullptr, &session));
  return sessions;
}

// Measures begin and commit of 256 sessions without K, V or attention, against 25 microseconds.
void step_overhead(benchmark::State& state) {
  constexpr size_t count = 256;
  const pkv_cache cache = create_ids_only(16, 1 << 20, nullptr);
  const std::vector<pkv_session> sessions = open_sessions(cache, count);
  const std::vector<uint32_t> ones(count, 1);
  const std::vector<int32_t> tokens(count, 7);
  const auto run_step = [&] {
    pkv_batch batch;
    check(pkv_batch_begin(cache, count, sessions.data(), ones.data(), &batch));
    check(pkv_batch_commit(batch, count, tokens.data()));
    uint64_t length;
    check(pkv_session_get_length(sessions[0], &length));
    if (length == 50000)
      for (const pkv_session session : sessions) check(pkv_session_trim(session, 0));
  };
  constexpr unsigned steps = 200;
  const auto [seconds] = in_turns(state, [&] {
    for (unsigned i = 0; i < steps; i++) run_step();
  });
  report_microseconds(state, seconds / steps, 25);
  check(pkv_cache_destroy(cache));
}

// The least work of a decode step of a recurrent layer: it reads and writes a whole state.
void update(const float* before, float* after, size_t floats) {
  for (size_t i = 0; i < floats; i++) after[i] = 0.9f * before[i] + 0.1f;
}

// Measures a decode step of 16 sessions and 24 layers with states of 256 KiB, against the same
// arithmetic in place in arrays of the engine, and the time of only the calls.
void states_step(benchmark::State& state) {
  constexpr size_t sessions = 16, floats = 65536;
  constexpr uint32_t layers = 24;
  auto group = made<pkv_layer_group>();
  group.layers = layers;
  group.kind = PKV_LAYERS_STATES;
  group.layer_bytes = floats * sizeof(float);
  group.blocks = 3 * sessions;
  auto config = made<pkv_cache_config>();
  config.groups = &group;
  config.prefault = 1;
  pkv_cache cache;
  check(pkv_cache_create(&config, &cache));
  const std::vector<pkv_session> open = open_sessions(cache, sessions);
  const std::vector<uint32_t> ones(sessions, 1);
  std::vector<const void*> before(sessions);
  std::vector<void*> after(sessions);
  std::vector<float> own(sessions * layers * floats);
  const auto step = [&](bool computes) {
    pkv_batch batch;
    size_t count;
    check(pkv_batch_begin(cache, sessions, open.data(), ones.data(), &batch));
    for (uint32_t layer = 0; layer < layers; layer++) {
      check(pkv_batch_get_states(batch, layer, before.data(), sessions, after.data(), &count));
      for (size_t i = 0; i < sessions && computes; i++)
        update(static_cast<const float*>(before[i]), static_cast<float*>(after[i]), floats);
    }
    check(pkv_batch_commit(batch, 0, nullptr));
  };
  step(false);
  const auto update_in_place = [&] {
    for (size_t i = 0; i < own.size(); i += floats) update(&own[i], &own[i], floats);
    benchmark::DoNotOptimize(own.data());
  };
  const auto [ours, in_place, calls] =
      in_turns(state, [&] { step(true); }, update_in_place, [&] { step(false); });
  state.counters["us_calls"] = calls * 1e6;
  state.counters["ratio"] = in_place / ours;
  check(pkv_cache_destroy(cache));
}

// Measures an operation that shares the blocks of a session of 32k tokens, against 20 microseconds,
// and counts the blocks that it takes.
template <class Take>
void share(benchmark::State& state, const Take& take) {
  Filled filled({.sessions = 1, .tokens = 32768});
  auto before = made<pkv_pool_stats>(), after = before;
  check(pkv_cache_get_pool_stats(filled.cache(), 0, &before));
  const auto [seconds] = in_turns(state, [&] {
    const auto begin = Clock::now();
    const auto close = take(filled.sessions()[0]);
    const double passed = seconds_since(begin);
    check(pkv_cache_get_pool_stats(filled.cache(), 0, &after));
    close();
    return passed;
  });
  report_microseconds(state, seconds, 20);
  state.counters["blocks_taken"] = static_cast<double>(after.held_blocks - before.held_blocks);
}

void fork_session(benchmark::State& state) {
  share(state, [](pkv_session session) {
    pkv_session child;
    check(pkv_session_fork(session, &child));
    return [child] { check(pkv_session_close(child)); };
  });
}

void snapshot_session(benchmark::State& state) {
  share(state, [](pkv_session session) {
    pkv_snapshot snapshot;
    check(pkv_snapshot_take(session, &snapshot));
    return [snapshot] { check(pkv_snapshot_close(snapshot)); };
  });
}

// Takes and returns ids on every thread, `rounds` times. The peer is a vector of ids under a mutex,
// used in the same way by as many threads.
template <class Step>
double seconds_of_threads(unsigned threads, size_t rounds, const Step& step) {
  const auto begin = Clock::now();
  std::vector<std::thread> workers;
  for (unsigned t = 0; t < threads; t++)
    workers.emplace_back([&] {
      for (size_t i = 0; i < rounds; i++) step();
    });
  for (std::thread& worker : workers) worker.join();
  return seconds_since(begin);
}

template <size_t batch>
void pool(benchmark::State& state) {
  const unsigned threads = static_cast<unsigned>(state.range(0));
  auto config = made<pkv_pool_config>();
  config.blocks = 65536;
  pkv_pool pool;
  check(pkv_pool_create(&config, &pool));
  std::mutex mutex;
  std::vector<uint32_t> free(65536);
  const auto take_from_pool = [&] {
    pkv_block_ref blocks[batch];
    check(pkv_pool_alloc(pool, batch, blocks));
    check(pkv_pool_release(pool, batch, blocks));
  };
  const auto take_from_vector = [&] {
    uint32_t ids[batch];
    for (uint32_t& id : ids) {
      const std::lock_guard lock(mutex);
      id = free.back();
      free.pop_back();
    }
    benchmark::DoNotOptimize(ids);
    for (const uint32_t id : ids) {
      const std::lock_guard lock(mutex);
      free.push_back(id);
    }
  };
  constexpr size_t times = 400000 / batch;
  const auto [ours, peer] = in_turns(
      state, [&] { return seconds_of_threads(threads, times, take_from_pool); },
      [&] { return seconds_of_threads(threads, times, take_from_vector); });
  report(state, "M_ids/s", "M_ids/s_mutex", static_cast<double>(times * batch * threads) / 1e6,
         ours, peer);
  check(pkv_pool_destroy(pool));
}

}  // namespace

void register_bookkeeping() {
  add("step/overhead", step_overhead)->Unit(benchmark::kMicrosecond);
  add("states/step", states_step)->Unit(benchmark::kMicrosecond);
  add("fork", fork_session)->Unit(benchmark::kMicrosecond);
  add("snapshot", snapshot_session)->Unit(benchmark::kMicrosecond);
  for (const unsigned threads : std::set{1u, 2u, 4u, 32u, processors()}) {
    add("pool/single", pool<1>)->Arg(threads);
    add("pool/batch16", pool<16>)->Arg(threads);
  }
}

}  // namespace pkv::bench
