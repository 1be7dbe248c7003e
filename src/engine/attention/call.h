// The description of one attention call: sequences with their K and V, queries, outputs and
// parameters. A batch or pkv_kv_attend() makes it from arguments that it has checked; then it never
// changes. attend() derives from it Readings (what each query sees), ChosenBlocks if queries choose
// blocks, and from either a WorkSplit. Each of these is complete when it is made and refers to the
// ones before it.
#pragma once

#include <pagedkv/experimental.h>

#include <span>
#include <vector>

#include "engine/rows/rows.h"

namespace pkv::attention {

struct AttendShape {
  uint32_t query_heads, kv_heads, key_dim, value_dim;
  pkv_dtype key_dtype, value_dtype;

  uint32_t heads_per_kv_head() const { return query_heads / kv_heads; }
  // The floats of a row of prepared queries, and of partial results.
  uint32_t key_floats() const { return kernels::whole_dims(key_dim); }
  uint32_t value_floats() const { return kernels::whole_dims(value_dim); }
};

// A mask of kind BYTES, F16 or F32.
struct ColumnMask {
  pkv_mask_kind kind;
  const unsigned char* data;
  uint64_t columns;
  int64_t row_stride, batch_stride;  // in elements
  const int64_t* first_positions;    // by sequence, or NULL: 0

  bool additive() const { return kind == PKV_MASK_F16 || kind == PKV_MASK_F32; }
  unsigned element_bytes() const {
    return kind == PKV_MASK_BYTES ? 1 : kind == PKV_MASK_F16 ? 2 : 4;
  }
  // The position of column 0.
  int64_t first_position(uint64_t sequence) const {
    return first_positions != nullptr ? first_positions[sequence] : 0;
  }
};

// How far the queries of a KV head see.
struct Window {
  uint32_t window;  // positions on each side that they see, including their own; 0: all
  uint32_t sinks;   // positions at the start that are always seen; 0 without a window

  bool operator==(const Window&) const = default;
};

// A caller's pkv_attention_params with defaults filled in.
struct AttendParams {
  float scale;
  bool causal;
  Window window;  // of all KV heads; with kv_head_windows, the maxima of these
  std::vector<Window> kv_head_windows;  // by KV head; empty if all have the same
  kernels::ScoreTransform transform;
  const float* sink_logits;
  // At most one of mask, parents and column_mask is given.
  const uint64_t* mask;
  uint64_t mask_words;
  const int64_t* mask_positions;  // of `mask`, or NULL
  const int32_t* parents;
  ColumnMask column_mask;  // data is NULL: not given
  uint32_t top_blocks, first_blocks, last_blocks;
  uint32_t tokens_per_choice;  // queries that choose blocks together; at least 1
  const uint32_t* block_lists;
  uint32_t block_list_size;

  // Returns whether queries read only some blocks, chosen by bounds or from lists.
  bool chooses() const { return top_blocks != 0 || block_lists != nullptr; }
  // Returns whether queries replace the causal rule among new tokens by a mask.
  bool masks_new_tokens() const { return mask != nullptr || parents != nullptr; }
  bool has_window() const;
  // Returns whether windows or slopes depend on the positions of tokens.
  bool uses_positions() const { return transform.alibi_slopes != nullptr || has_window(); }
  Window window_of(uint32_t kv_head) const {
    return kv_head_windows.empty() ? window : kv_head_windows[kv_head];
  }
};

// Checks a caller's parameters (NULL: defaults) and fills in defaults. `of_layer` is the window of
// the layer's group. Throws INVALID_ARGUMENT, UNSUPPORTED, OUT_OF_RANGE for a window or sinks
// beyond what the layer keeps, bad_alloc.
AttendParams check_params(const pkv_attention_params* params, uint32_t kv_heads, uint32_t key_dim,
                          const Window& of_layer);

// Results besides the outputs: a caller's pkv_attention_outputs and pkv_block_outputs. Those that
// are not wanted are NULL.
struct AttendOutputs {
  float* lse;
  uint32_t* chosen;
  float* masses;
  uint64_t mass_blocks;
  uint32_t mass_queries;  // 0: all
};

// Checks which results a caller wants (NULL: none) of a call with these parameters. Throws
// INVALID_ARGUMENT.
AttendOutputs check_outputs(const pkv_attention_outputs* outputs, const AttendParams& params);

struct AttendCall {
  AttendShape shape;
  AttendParams params;
  AttendOutputs outputs;
  std::span<const rows::Sequence> sequences;  // those that have queries
  rows::BatchRows rows;                       // which rows of q and out each sequence has
  rows::BatchTensor q, out;

  // Returns the row of a sequence's first query in that sequence's part of a mask with columns: in
  // a padded batch the rows before it are padding, else it is row 0, wherever the query is in a
  // tensor.
  uint64_t mask_row(const rows::Sequence& sequence) const {
    return q.batch_stride != 0 ? rows.first(sequence.index, 0, true) : 0;
  }
};

// Checks what depends on both parameters and sequences: masks, chosen blocks and outputs.
// Throws INVALID_ARGUMENT if an array is too short for a sequence, a parent comes after its child,
// or parameters cannot be combined; OUT_OF_RANGE if mask rows have more words than any step needs,
// or a new token has a position before the step; UNSUPPORTED if storage is EXTERNAL and must
// not be; OVERFLOW if an array would not fit into the address space.
void check_call(const AttendCall& call);

}  // namespace pkv::attention
