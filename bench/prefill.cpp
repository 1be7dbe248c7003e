// Measures how many of the CPU's multiply-adds prefill attention uses, and how it scales with
// threads.
#include "fixture.h"
#include "peaks.h"

namespace pkv::bench {

namespace {

constexpr uint32_t context = 4096, chunk = 512;  // new tokens are the last ones of the context

// Returns the operations of the products of queries and keys that are not masked, and of the
// weights and values.
double flops(const Geometry& geometry) {
  const double pairs =
      static_cast<double>(chunk) * (context - chunk) + static_cast<double>(chunk) * (chunk + 1) / 2;
  return 4.0 * pairs * geometry.dim * geometry.query_heads() * geometry.sessions;
}

Geometry geometry_of(pkv_dtype dtype, uint32_t group, uint32_t dim) {
  return {.dtype = dtype,
          .group = group,
          .dim = dim,
          .sessions = 1,
          .tokens = context - chunk,
          .extra = chunk};
}

void prefill(benchmark::State& state, const Geometry& geometry) {
  Filled filled(geometry);
  Step step(geometry, filled, chunk);
  const double operations = flops(geometry);
  const auto [ours, limit] =
      in_turns(state, [&] { step.attend(); }, [&] { return fma_seconds(operations); });
  report(state, "GFLOP/s", "FMA_GFLOP/s", operations / 1e9, ours, limit);
}

// Measures the time of one thread, over N times the time of N threads.
void scaling(benchmark::State& state, Geometry geometry) {
  geometry.threads = 1;
  Filled one(geometry);
  geometry.threads = processors();
  Filled all(geometry);
  Step alone(geometry, one, chunk), together(geometry, all, chunk);
  const auto [single, parallel] =
      in_turns(state, [&] { alone.attend(); }, [&] { together.attend(); });
  state.counters["threads"] = processors();
  state.counters["ratio"] = single / parallel / processors();
}

}  // namespace

void register_prefill() {
  for (const pkv_dtype dtype : {PKV_F32, PKV_BF16, PKV_F16, PKV_INT8, PKV_INT4})
    for (const uint32_t group : {1u, 4u, 8u})
      for (const uint32_t dim : {64u, 128u, 256u}) {
        const int unusual = (group != 4) + (dim != 128);
        if (short_run() && (unusual > 1 || (unusual == 1 && dtype != PKV_BF16))) continue;
        add(std::string("prefill/") + dtype_name(dtype) + "/gqa" + std::to_string(group) + "/dim" +
                std::to_string(dim),
            prefill, geometry_of(dtype, group, dim));
      }
  add("scaling/prefill", scaling, geometry_of(PKV_BF16, 4, 128));
}

}  // namespace pkv::bench
