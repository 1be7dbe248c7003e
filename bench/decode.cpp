// Decode attention: how fast K and V are read, alone and with a prefix that sessions share.
#include <algorithm>

#include "fixture.h"
#include "peaks.h"

namespace pkv::bench {

namespace {

void decode(benchmark::State& state, const Geometry& geometry) {
  Filled filled(geometry);
  Step step(geometry, filled, 1);
  // In turns with a plain read of as many bytes, a few calls at a time if they are short.
  const size_t bytes = geometry.kv_bytes(),
               calls = std::clamp<size_t>(largest_read / 8 / bytes, 1, 64);
  const size_t plain = std::min(bytes * calls, largest_read);
  double ours = 0, reading = 0;
  for (auto _ : state) {
    const auto begin = Clock::now();
    for (size_t i = 0; i < calls; i++) step.attend();
    ours += seconds_since(begin);
    reading += read_seconds(plain);
  }
  const double rounds = static_cast<double>(state.iterations());
  const double rate = rounds * static_cast<double>(bytes * calls) / ours,
               limit = rounds * static_cast<double>(plain) / reading;
  state.counters["GB/s"] = rate / 1e9;
  state.counters["read_GB/s"] = limit / 1e9;
  state.counters["tokens/s"] = rounds * static_cast<double>(geometry.sessions * calls) / ours;
  state.counters["ratio"] = rate / limit;
}

// Tokens per second over bf16's, in turns.
void decode_quantised(benchmark::State& state, const Geometry& geometry) {
  Geometry unquantised = geometry;
  unquantised.dtype = PKV_BF16;
  Filled quantised(geometry), peer(unquantised);
  Step step(geometry, quantised, 1), peer_step(unquantised, peer, 1);
  const auto [ours, theirs] = in_turns(state, [&] { step.attend(); }, [&] { peer_step.attend(); });
  state.counters["tokens/s"] = geometry.sessions * static_cast<double>(state.iterations()) / ours;
  state.counters["bf16_tokens/s"] =
      geometry.sessions * static_cast<double>(state.iterations()) / theirs;
  state.counters["ratio"] = theirs / ours;
}

// The sessions are forks of one prompt; the same with prompts of their own beside it.
void shared_prefix(benchmark::State& state, const Geometry& geometry) {
  Filled apart(geometry);
  Geometry one = geometry;
  one.sessions = 1;
  one.extra = 16 * geometry.sessions;
  Filled shared(one);
  while (shared.sessions().size() < geometry.sessions) {
    pkv_session child;
    check(pkv_session_fork(shared.sessions()[0], &child));
    shared.sessions().push_back(child);
  }
  Step step(geometry, shared, 1), apart_step(geometry, apart, 1);
  const auto [together, separate] =
      in_turns(state, [&] { step.attend(); }, [&] { apart_step.attend(); });
  const double flops =
      4.0 * geometry.sessions * geometry.tokens * geometry.query_heads() * geometry.dim;
  state.counters["us"] = together * 1e6 / static_cast<double>(state.iterations());
  state.counters["us_apart"] = separate * 1e6 / static_cast<double>(state.iterations());
  state.counters["of_FMA_peak"] =
      flops * static_cast<double>(state.iterations()) / together / fma_rate();
  state.counters["ratio"] = separate / together;
}

void add(const Geometry& geometry) {
  constexpr uint64_t most_bytes = uint64_t{6} << 30;
  if (geometry.kv_bytes() > most_bytes) return;
  const bool quantised = geometry.dtype == PKV_INT8 || geometry.dtype == PKV_INT4;
  benchmark::RegisterBenchmark(("decode/" + geometry.name()).c_str(),
                               quantised ? decode_quantised : decode, geometry)
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
}

}  // namespace

void register_decode() {
  constexpr pkv_dtype dtypes[] = {PKV_F32,  PKV_F16,      PKV_BF16,    PKV_INT8,
                                  PKV_INT4, PKV_FP8_E4M3, PKV_FP8_E5M2};
  const Geometry usual;
  for (const pkv_dtype dtype : dtypes) {
    for (const uint32_t group : {1u, 4u, 8u}) {
      for (const uint32_t dim : {64u, 128u, 256u}) {
        for (const uint32_t sessions : {1u, 8u, 64u}) {
          for (const uint32_t tokens : {512u, 4096u, 32768u}) {
            // The short mode varies one thing at a time.
            const int unusual = (group != usual.group) + (dim != usual.dim) +
                                (sessions != usual.sessions) + (tokens != usual.tokens);
            if (short_run() && (unusual > 1 || (unusual == 1 && dtype != PKV_BF16))) continue;
            Geometry geometry;
            geometry.dtype = dtype;
            geometry.group = group;
            geometry.dim = dim;
            geometry.sessions = sessions;
            geometry.tokens = tokens;
            add(geometry);
          }
        }
      }
    }
  }
  for (const uint32_t group : {1u, 4u}) {
    Geometry geometry;
    geometry.sessions = 16;
    geometry.group = group;
    benchmark::RegisterBenchmark(("shared_prefix/" + geometry.name()).c_str(), shared_prefix,
                                 geometry)
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  }
}

}  // namespace pkv::bench
