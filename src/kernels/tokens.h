// Where a position of a sequence lies in memory, and which positions a row sees: the arithmetic all kernels share.
// Everything here is static, so that each file keeps the copy that was compiled with its own flags.
#pragma once

#include "kernels/views.h"

namespace pkv {

struct Range {
  uint64_t begin, end;
};

// The positions of the task that a query sees; begin >= end: none.
static inline Range seen_by(const AttendTask& task, uint64_t query) {
  const uint64_t next = task.first_query + query + 1;
  const uint64_t lo = task.window != 0 && next > task.window ? next - task.window : 0;
  const uint64_t hi = task.causal != 0 && next < task.end ? next : task.end;
  return {lo > task.begin ? lo : task.begin, hi};
}

// A token's place: which block, and which slot in it.
struct Slot {
  int64_t block;
  int64_t offset;
};

static inline Slot slot_of(const KvView& kv, uint64_t position) {
  if (kv.blocks == nullptr) return {0, static_cast<int64_t>(position)};
  return {kv.blocks[position / kv.block_size], static_cast<int64_t>(position % kv.block_size)};
}

static inline int64_t k_offset(const KvView& kv, int64_t block, int64_t row, uint64_t head) {
  return block * kv.k_block_stride + row * kv.k_row_stride + static_cast<int64_t>(head) * kv.k_head_stride;
}

static inline int64_t v_offset(const KvView& kv, int64_t block, int64_t row, uint64_t head) {
  return block * kv.v_block_stride + row * kv.v_row_stride + static_cast<int64_t>(head) * kv.v_head_stride;
}

// Element indices in a packed tile; pair is 2 for bf16, else 1.
static inline uint32_t packed_k_index(uint32_t pair, uint32_t token, uint32_t dim) {
  return (dim / pair * tile_tokens + token) * pair + dim % pair;
}

static inline uint32_t packed_v_index(uint32_t pair, uint32_t value_dim, uint32_t token, uint32_t dim) {
  return (token / pair * value_dim + dim) * pair + token % pair;
}

// What a score is reduced by before exp: the row's maximum so far. While every score seen is -infinity any finite number
// will do, and gives them the weight 0 they have beside a finite score.
static inline float shift_of(float max) { return max == -__builtin_inff() ? 0.0f : max; }

// The last word on a row of a partial result. (max, sum) is
//   (-inf, 0)    nothing was seen              (-inf, NaN)  every score seen was -infinity
//   (NaN, NaN)   a score was NaN or +infinity  (m, s >= 1)  otherwise
static inline void close_row(bool saw_something, float* max, float* sum) {
  if (*sum != *sum)
    *max = *sum;
  else if (saw_something && *sum == 0.0f)
    *sum = __builtin_nanf("");
}

// The maximum of a row over its parts; NaN parts are left out, they make the sum NaN.
static inline float merged_max(const FinishTask& task, int64_t row) {
  float max = -__builtin_inff();
  for (uint32_t part = 0; part < task.parts; part++) {
    const float m = task.max[part * task.stat_part_stride + row];
    if (m > max) max = m;
  }
  return max;
}

// True if a row saw a position in any part. Its sum is 0 otherwise, and never else.
static inline bool merged_saw(const FinishTask& task, int64_t row) {
  for (uint32_t part = 0; part < task.parts; part++)
    if (!(task.sum[part * task.stat_part_stride + row] == 0.0f)) return true;
  return false;
}

}  // namespace pkv
