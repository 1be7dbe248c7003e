// Arithmetic that all kernels share: the address of a position of a sequence, the positions that a
// row sees, and the corner cases of the softmax. All functions are static, so that each file keeps
// the copy that was compiled with its own flags.
#pragma once

#include "kernels/views.h"

namespace pkv::kernels {

// The block of a token, and its slot in the block.
struct Slot {
  int64_t block;
  int64_t offset;
};

static inline Slot slot_of(const KvView& kv, uint64_t position) {
  if (kv.blocks == nullptr) return {0, static_cast<int64_t>(position)};
  return {kv.blocks[position / kv.block_size], static_cast<int64_t>(position % kv.block_size)};
}

// The block of a position, and the number of its row in the block, in units of row_stride: in the
// plain layout a row is a token, in the packed one a tile.
static inline Slot row_of(const KvView& kv, uint64_t position) {
  const Slot slot = slot_of(kv, position);
  return kv.layout == PKV_LAYOUT_PACKED ? Slot{slot.block, slot.offset / tile_tokens} : slot;
}

static inline unsigned char* row_address(const SideView& side, Slot row, uint64_t head) {
  return side.data + row.block * side.block_stride + row.offset * side.row_stride +
         static_cast<int64_t>(head) * side.head_stride;
}

// One bit for each token of a tile, the lowest for the first.
using TokenMask = uint32_t;
inline constexpr TokenMask all_tokens = 0xFFFF;

// The positions of [tile, tile + 16) that lie in [begin, end).
static inline TokenMask range_mask(uint64_t tile, uint64_t begin, uint64_t end) {
  if (begin >= tile + tile_tokens || end <= tile || begin >= end) return 0;
  const uint32_t from = begin > tile ? static_cast<uint32_t>(begin - tile) : 0;
  const uint32_t to = end < tile + tile_tokens ? static_cast<uint32_t>(end - tile) : tile_tokens;
  return (all_tokens >> (tile_tokens - (to - from))) << from;
}

// The bits of a query's own mask for a tile. Positions before mask_begin are set.
static inline TokenMask own_mask(const QueryView& query, uint64_t tile) {
  TokenMask mask = 0;
  for (uint32_t t = 0; t < tile_tokens; t++) {
    const uint64_t position = tile + t;
    if (position >= query.end) break;
    const uint64_t bit = position - query.mask_begin;
    if (position < query.mask_begin || (query.mask[bit / 64] >> (bit % 64) & 1) != 0)
      mask |= 1u << t;
  }
  return mask;
}

// Returns whether the tokens of a tile are in a hole of the block table.
static inline bool in_hole(const KvView& kv, uint64_t tile) {
  return kv.has_holes && kv.blocks[tile / kv.block_size] == PKV_NO_BLOCK_ID;
}

// The tokens of a tile that a query of a task sees.
static inline TokenMask seen_in_tile(const AttendTask& task, const QueryView& query,
                                     uint64_t tile) {
  if (in_hole(task.kv, tile)) return 0;
  TokenMask seen = range_mask(tile, query.begin, query.end);
  if (task.sinks != 0) seen |= range_mask(tile, 0, task.sinks < query.end ? task.sinks : query.end);
  if (query.mask != nullptr && tile + tile_tokens > query.mask_begin) seen &= own_mask(query, tile);
  return seen & range_mask(tile, task.begin, task.end);
}

// The positions that any query of a task may see, as two ranges: the sinks, and the rest. A kernel
// reads whole units of `unit` positions. No unit has positions of both ranges, so each unit is read
// once, for any windows of the rows.
struct Reach {
  uint64_t sinks_end;   // the first range is [task.begin, sinks_end)
  uint64_t begin, end;  // the second range
};

static inline Reach reach_of(const AttendTask& task, uint64_t unit) {
  uint64_t begin = ~uint64_t{0}, end = 0;
  for (uint32_t i = 0; i < task.queries; i++) {
    if (task.query[i].begin < begin) begin = task.query[i].begin;
    if (task.query[i].end > end) end = task.query[i].end;
  }
  Reach reach = {task.begin, begin > task.begin ? begin : task.begin,
                 end < task.end ? end : task.end};
  const uint64_t sinks = task.sinks < reach.end ? task.sinks : reach.end;
  if (sinks > task.begin) reach.sinks_end = sinks;
  if (reach.sinks_end > task.begin && reach.begin / unit * unit < reach.sinks_end) {
    // The ranges meet, so one is enough.
    reach.begin = task.begin;
    reach.sinks_end = task.begin;
  }
  return reach;
}

// The number that is subtracted from scores before exp: the row's maximum so far. If all scores are
// -infinity, it may be any finite number: then the weights are 0, as they would be beside a finite
// score.
static inline float shift_of(float max) { return max == -__builtin_inff() ? 0.0f : max; }

// Gives the maximum and the sum of a row's partial result their final form:
//   (-inf, 0)      the row saw no token
//   (-inf, NaN)    all scores it saw were -infinity
//   (NaN, NaN)     a score was NaN or +infinity
//   (max, >= 1)    otherwise
static inline void close_row(bool saw_something, float* max, float* sum) {
  if (*sum != *sum)
    *max = *sum;
  else if (saw_something && *sum == 0.0f)
    *sum = __builtin_nanf("");
}

// Returns the index of a row in a part; `head` counts from the first head of the part.
static inline uint64_t row_of_part(const Partial& part, uint64_t head, uint64_t row) {
  return head * part.head_rows + row;
}

// Returns the maximum of a row over all parts. A part whose maximum is NaN is left out, because its
// sum is NaN, too, and so is the merged sum.
static inline float merged_max(const FinishTask& task, uint64_t head, uint64_t row) {
  float max = -__builtin_inff();
  for (uint32_t i = 0; i < task.parts; i++) {
    const float m = task.part[i].max[row_of_part(task.part[i], head, row)];
    if (m > max) max = m;
  }
  return max;
}

// Returns whether a row saw a token in any part. The sum of a part is 0 if and only if the row saw
// no token there.
static inline bool merged_saw(const FinishTask& task, uint64_t head, uint64_t row) {
  for (uint32_t i = 0; i < task.parts; i++)
    if (!(task.part[i].sum[row_of_part(task.part[i], head, row)] == 0.0f)) return true;
  return false;
}

// Returns the log-sum-exp of a row in a result that is merged with others: -infinity if it saw
// nothing. Results of other libraries may have +infinity instead, which FlashAttention 2 writes
// (Dao 2023) and vLLM's merge also accepts.
static inline float lse_of(const MergeTask& task, uint32_t result, uint64_t row_and_head) {
  const float lse = task.lse[result][row_and_head];
  return lse == __builtin_inff() ? -lse : lse;
}

}  // namespace pkv::kernels
