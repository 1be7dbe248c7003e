// What the kernels see: plain pointers, strides and block ids. No type of the engine, no inline function of the
// standard library (files of this room are compiled for several instruction sets and linked together).
#pragma once

#include <pagedkv/cache.h>
#include <stddef.h>
#include <stdint.h>

namespace pkv {

inline constexpr uint32_t tile_tokens = 16;

// K and V of one layer of one sequence. Strides are bytes. Block b begins at b * block_stride. Inside a block
//   plain:  token t of head h begins at t * row_stride + h * head_stride
//   packed: tile t / 16 of head h begins at (t / 16) * row_stride + h * head_stride; see PKV_LAYOUT_PACKED
struct KvView {
  unsigned char* k;
  unsigned char* v;
  int64_t k_block_stride, k_row_stride, k_head_stride;
  int64_t v_block_stride, v_row_stride, v_head_stride;
  const uint32_t* blocks;  // block table from position 0 on; NULL: one run of tokens that begins at k and v
  uint32_t block_size;     // tokens; not used where blocks is NULL
  uint32_t kv_heads;
  uint32_t key_dim;
  uint32_t value_dim;
};

// Rows in a caller's memory. Strides count elements of dtype.
struct RowsView {
  unsigned char* data;
  pkv_dtype dtype;
  int64_t row_stride;
  int64_t head_stride;
};

// Copies rows between a caller's memory and positions [first, first + count) of a sequence; row 0 is position first.
// k.data or v.data may be NULL: that side is left out.
struct CopyTask {
  KvView kv;
  uint64_t first;
  uint64_t count;
  RowsView k;
  RowsView v;
};

// Attention of some queries over positions [begin, end) of one sequence: an unnormalised partial result.
// Query i has position first_query + i and sees [lo, hi) with
//   hi = causal ? first_query + i + 1 : end          lo = window ? max(0, first_query + i + 1 - window) : 0
// Row r of KV head h is query r / group, query head h * group + r % group.
struct AttendTask {
  KvView kv;
  uint32_t group;     // query heads per KV head
  uint32_t queries;
  uint64_t first_query;
  uint64_t begin, end;
  uint32_t causal;
  uint32_t window;    // 0: none
  const float* q;     // [kv_heads][queries * group][key_dim], scale already applied
  float* out;         // [kv_heads][queries * group][value_dim], sum of exp(score - max) * v
  float* max;         // [kv_heads][queries * group], -infinity where nothing was seen
  float* sum;         // [kv_heads][queries * group], sum of exp(score - max); 0 where nothing was seen
};

// Merges partial results of one AttendTask shape in order, normalises them and writes rows of the caller's.
struct FinishTask {
  uint32_t kv_heads, group, queries, value_dim;
  uint32_t parts;
  int64_t out_part_stride;   // floats from one part to the next
  int64_t stat_part_stride;  // the same of max and sum
  const float* out;
  const float* max;
  const float* sum;
  RowsView rows;             // row i is query i, head h * group + g
};

// queries rows of q into the order AttendTask wants, as fp32 times scale.
struct QueryTask {
  uint32_t kv_heads, group, queries, key_dim;
  float scale;
  RowsView rows;
  float* q;
};

}  // namespace pkv
