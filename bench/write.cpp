// Measures writes of rows of K and V into blocks, against a memcpy of as many bytes.
#include <algorithm>

#include "fixture.h"
#include "peaks.h"

namespace pkv::bench {

namespace {

// Prompts of 512 rows for 32 sessions at once; the blocks are far larger than the last-level cache.
void write(benchmark::State& state, pkv_dtype dtype) {
  const Geometry geometry{.dtype = dtype, .sessions = 32, .tokens = 512};
  Filled filled(geometry, false);
  const size_t rows = size_t{geometry.sessions} * geometry.tokens;
  const Rows kv(rows, geometry.kv_heads, geometry.dim, dtype);
  const pkv_batch batch = filled.begin(geometry.tokens);
  const size_t copied = std::min(geometry.kv_bytes(), largest_copy);
  const auto [ours, copying] = in_turns(
      state, [&] { check(pkv_batch_write(batch, 0, kv.tensor(), kv.tensor())); },
      [&] { return copy_seconds(copied); });
  const auto bytes = static_cast<double>(geometry.kv_bytes());
  report(state, "GB/s", "memcpy_GB/s", bytes / 1e9, ours,
         copying * bytes / static_cast<double>(copied));
  check(pkv_batch_abort(batch));
}

}  // namespace

void register_write() {
  for (const pkv_dtype dtype : {PKV_F32, PKV_BF16, PKV_F16})
    add(std::string("write/") + dtype_name(dtype), write, dtype);
}

}  // namespace pkv::bench
