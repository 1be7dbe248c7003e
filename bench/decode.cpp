// Measures how fast decode attention reads K and V, alone and with a prefix that sessions share.
#include <algorithm>

#include "fixture.h"
#include "peaks.h"

namespace pkv::bench {

namespace {

// In turns with plain reads of as much memory, a few calls at a time if they are short. What a
// cache keeps of K and V from one call to the next, it also keeps of that memory.
void decode(benchmark::State& state, const Geometry& geometry) {
  Filled filled(geometry);
  Step step(geometry, filled, 1);
  const size_t bytes = geometry.kv_bytes(),
               calls = std::clamp<size_t>(largest_read / 8 / bytes, 1, 64);
  const size_t plain = std::min(bytes, largest_read);
  const auto attend = [&] {
    for (size_t i = 0; i < calls; i++) step.attend();
  };
  const auto [ours, reading] = in_turns(state, attend, [&] { return read_seconds(plain, calls); });
  // The seconds in which plain reads would have read as many bytes.
  const double limit = reading * static_cast<double>(bytes) / static_cast<double>(plain);
  report(state, "GB/s", "read_GB/s", static_cast<double>(bytes * calls) / 1e9, ours, limit);
  state.counters["tokens/s"] = static_cast<double>(geometry.sessions * calls) / ours;
}

// Tokens per second over bf16's, in turns.
void decode_quantised(benchmark::State& state, const Geometry& geometry) {
  Geometry unquantised = geometry;
  unquantised.dtype = PKV_BF16;
  Filled quantised(geometry), peer(unquantised);
  Step step(geometry, quantised, 1), peer_step(unquantised, peer, 1);
  const auto [ours, theirs] = in_turns(state, [&] { step.attend(); }, [&] { peer_step.attend(); });
  report(state, "tokens/s", "bf16_tokens/s", geometry.sessions, ours, theirs);
}

// The sessions are forks of one prompt, in turns with sessions that have prompts of their own.
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
  state.counters["us"] = together * 1e6;
  state.counters["us_apart"] = separate * 1e6;
  state.counters["of_FMA_peak"] = flops / together / fma_rate();
  state.counters["ratio"] = separate / together;
}

}  // namespace

void register_decode() {
  constexpr uint64_t most_bytes = uint64_t{6} << 30;
  const Geometry usual;
  for (const pkv_dtype dtype : all_dtypes) {
    const bool quantised = dtype == PKV_INT8 || dtype == PKV_INT4;
    for (const uint32_t group : {1u, 4u, 8u})
      for (const uint32_t dim : {64u, 128u, 256u})
        for (const uint32_t sessions : {1u, 8u, 64u, 256u})
          for (const uint32_t tokens : {512u, 4096u, 32768u}) {
            // The short mode varies one number at a time.
            const int unusual = (group != usual.group) + (dim != usual.dim) +
                                (sessions != usual.sessions) + (tokens != usual.tokens);
            if (short_run() && (unusual > 1 || (unusual == 1 && dtype != PKV_BF16))) continue;
            if (sessions == 256 && (tokens != 512 || dim != usual.dim)) continue;
            const Geometry geometry{
                .dtype = dtype, .group = group, .dim = dim, .sessions = sessions, .tokens = tokens};
            if (geometry.kv_bytes() <= most_bytes)
              add("decode/" + geometry.name(), quantised ? decode_quantised : decode, geometry);
          }
  }
  for (const uint32_t group : {1u, 4u}) {
    const Geometry geometry{.group = group, .sessions = 16};
    add("shared_prefix/" + geometry.name(), shared_prefix, geometry);
  }
}

}  // namespace pkv::bench
