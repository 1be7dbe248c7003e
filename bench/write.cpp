// Writes of K and V rows into blocks, over memcpy of as many bytes.
#include <algorithm>

#include "fixture.h"
#include "peaks.h"

namespace pkv::bench {

namespace {

// Prompts of 512 rows for 32 sessions at once; the blocks are far larger than the last-level cache.
void write(benchmark::State& state, pkv_dtype dtype) {
  Geometry geometry;
  geometry.dtype = dtype;
  geometry.sessions = 32;
  geometry.tokens = 512;
  Filled filled(geometry, false);
  const size_t rows = size_t{geometry.sessions} * geometry.tokens;
  const Rows kv(rows, geometry.kv_heads, geometry.dim, dtype);
  const pkv_batch batch = filled.begin(geometry.tokens);
  const size_t bytes = std::min(geometry.kv_bytes(), largest_copy);
  double ours = 0, copying = 0;
  for (auto _ : state) {
    const auto begin = Clock::now();
    check(pkv_batch_write(batch, 0, kv.tensor(), kv.tensor()));
    ours += seconds_since(begin);
    copying += copy_seconds(bytes);
  }
  const double rounds = static_cast<double>(state.iterations());
  const double rate = static_cast<double>(geometry.kv_bytes()) * rounds / ours,
               limit = static_cast<double>(bytes) * rounds / copying;
  state.counters["GB/s"] = rate / 1e9;
  state.counters["memcpy_GB/s"] = limit / 1e9;
  state.counters["ratio"] = rate / limit;
  check(pkv_batch_abort(batch));
}

}  // namespace

void register_write() {
  for (const pkv_dtype dtype : {PKV_F32, PKV_BF16, PKV_F16})
    benchmark::RegisterBenchmark((std::string("write/") + dtype_name(dtype)).c_str(), write, dtype)
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
}

}  // namespace pkv::bench
