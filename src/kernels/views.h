// What the kernels see: plain pointers, strides and block ids. No type of the engine, no inline
// function of the standard library (files of this room are compiled for several instruction sets
// and linked together).
#pragma once

#include <pagedkv/cache.h>
#include <stddef.h>
#include <stdint.h>

namespace pkv::kernels {

inline constexpr uint32_t tile_tokens = 16;
inline constexpr uint32_t max_dim = 576;

// K or V of one layer of one sequence. Strides are bytes. Block b begins at b * block_stride.
// Inside a block
//   plain:  the row of token t of head h begins at t * row_stride + h * head_stride
//   packed: tile t / 16 of head h begins at (t / 16) * row_stride + h * head_stride; see
//   PKV_LAYOUT_PACKED
struct SideView {
  unsigned char* data;
  int64_t block_stride, row_stride, head_stride;
  pkv_dtype dtype;
  uint32_t dim;
};

struct KvView {
  SideView k;
  SideView v;  // data NULL: V is the first v.dim dims of K
  const uint32_t*
      blocks;  // block table from position 0 on; NULL: one run of tokens that begins at data
  uint32_t block_size;  // tokens; not used where blocks is NULL
  uint32_t kv_heads;
  pkv_layout layout;
};

// Bytes of an element of a caller's rows, which are f32, f16 or bf16.
static inline constexpr unsigned dtype_bytes(pkv_dtype dtype) { return dtype == PKV_F32 ? 4 : 2; }

// Rows in a caller's memory. Strides count elements.
struct RowsView {
  unsigned char* data;
  pkv_dtype dtype;
  int64_t row_stride;
  int64_t head_stride;
};

// Copies rows between a caller's memory and positions [first, first + count) of a sequence; row 0
// is position first. k.data or v.data may be NULL: that side is left out.
struct CopyTask {
  KvView kv;
  uint64_t first;
  uint64_t count;
  RowsView k;
  RowsView v;
};

// Copies the stored bits of `count` positions from one sequence to another with rows of the same
// types and dims, whatever their layouts, or within one: then position by position. A side without
// data in either is left out.
struct TransferTask {
  KvView from;
  uint64_t from_first;
  KvView to;
  uint64_t to_first;
  uint64_t count;
};

// What one query sees of positions below `end`: those below `sinks` of its task, and those from
// `begin` on; from mask_begin on only the ones whose bit is set in mask (bit i of word w: position
// mask_begin + 64 w + i).
struct QueryView {
  uint64_t position;  // its own
  uint64_t begin, end;
  const uint64_t* mask;  // NULL: no mask
  uint64_t mask_begin;
};

// What is done to a score q . k before the softmax, in this order.
struct ScoreTransform {
  float softcap;              // 0: none; else softcap * tanh(score / softcap)
  const float* alibi_slopes;  // NULL, or one per query head: slope * (position of the token -
                              // position of the query)
};

// Attention of some queries over positions [begin, end) of one sequence (or of several that share
// those positions): an unnormalised partial result for KV heads [head_begin, head_end). Row r of a
// KV head is query r / group, query head head * group + r % group.
struct AttendTask {
  KvView kv;
  uint32_t head_begin, head_end;
  uint32_t gqa_group;  // query heads per KV head
  uint32_t queries;
  const QueryView* query;
  uint64_t begin, end;
  uint64_t sinks;
  ScoreTransform transform;
  const float* q;  // [heads][queries * group][key_dim], scale already applied
  float scale;     // the one that was: rows that were bf16 before it are taken as such again, where
                   // that helps
  bool bf16_weights;  // results become bf16, so weights may be that, too, where that helps
  float* out;         // [heads][queries * group][value_dim], sum of exp(score - max) * v
  float* max;         // [heads][queries * group], -infinity where nothing was seen
  float* sum;         // [heads][queries * group], sum of exp(score - max); 0 where nothing was seen
  unsigned char* scratch;  // attend_work_bytes() of it, 64-byte aligned
};

// Rows of one KV head from which on K and V are unpacked once for all of them and multiplied as
// matrices; below, they are read straight from the tiles.
inline constexpr uint32_t min_matmul_rows = 16;

// One partial result of a run of rows: of row r of head h, out begins at (h * head_rows + r) *
// value_dim.
struct Partial {
  const float* out;
  const float* max;
  const float* sum;
  uint64_t head_rows;
};

// Merges partial results of the same rows in order, normalises them and writes rows of the
// caller's.
struct FinishTask {
  uint32_t head_begin, head_end;  // the partials begin at head_begin
  uint32_t gqa_group, queries, value_dim;
  uint32_t parts;
  const Partial* part;
  const float* sink_logits;  // NULL, or one per query head: a score of a token without V
  RowsView rows;             // row i is query i, head h * group + g
  float* lse;           // NULL, or [queries][query_heads]: the logarithm of the sum of exp(score)
  uint64_t lse_stride;  // floats from one query to the next
};

// queries rows of q, for some KV heads, into the order AttendTask wants, as fp32 times scale.
struct QueryTask {
  uint32_t head_begin, head_end, gqa_group, queries, key_dim;
  float scale;
  RowsView rows;
  float* q;  // of row r of head h: at ((h - head_begin) * head_rows + r) * key_dim
  uint64_t head_rows;
};

// Normalised results of several attention calls over the same rows, with their log-sum-exp, into
// one.
struct MergeTask {
  uint64_t rows;
  uint32_t heads, dim, count;
  const RowsView* out;      // [count]
  const float* const* lse;  // [count][rows][heads]
  RowsView merged;
  float* merged_lse;  // NULL, or [rows][heads]
};

}  // namespace pkv::kernels
