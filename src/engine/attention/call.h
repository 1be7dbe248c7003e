// The description of one attention call: sequences with their K and V, queries, outputs and
// parameters. A batch and pkv_attention() make it from checked arguments, and it does not change
// afterwards. attend() makes Readings from it, ChosenBlocks from these, and a WorkSplit from
// either. Each of them is complete when it is made, and refers to the ones before it.
#pragma once

#include <pagedkv/attention.h>

#include <span>
#include <vector>

#include "engine/rows/rows.h"

namespace pkv::attention {

struct AttendShape {
  uint32_t query_heads, kv_heads, key_dim, value_dim;
  pkv_dtype key_dtype, value_dtype;
};

// A mask of kind BYTES.
struct BoolMask {
  const uint8_t* data;
  uint64_t columns;
  int64_t row_stride, batch_stride;
  const int64_t* first_positions;  // by sequence, or NULL: 0

  // The position of column 0.
  int64_t first_position(uint64_t sequence) const {
    return first_positions != nullptr ? first_positions[sequence] : 0;
  }
};

// The positions before a query that a KV head sees.
struct Window {
  uint32_t window;  // 0: none
  uint32_t sinks;   // 0 without a window

  bool operator==(const Window&) const = default;
};

// A caller's pkv_attention_params with defaults filled in.
struct AttendParams {
  float scale;
  bool causal;
  Window window;                     // of all KV heads, or the widest window and the most sinks
  std::vector<Window> head_windows;  // by KV head; empty if all have the same
  kernels::ScoreTransform transform;
  const float* sink_logits;
  // At most one of the three masks is given.
  const uint64_t* mask;
  uint64_t mask_words;
  const int32_t* parents;
  BoolMask bool_mask;  // data is NULL if it is not given
  float* lse;
  uint32_t top_blocks, first_blocks, last_blocks;
  bool choose_together;
  const uint32_t* block_lists;
  uint64_t block_list_size;
  uint32_t* chosen_blocks;
  float* block_mass;
  uint64_t block_mass_size;
  uint32_t block_mass_queries;  // 0: all

  // Returns whether queries read only chosen blocks.
  bool chooses() const { return top_blocks != 0 || block_lists != nullptr; }
  Window window_of(uint32_t kv_head) const {
    return head_windows.empty() ? window : head_windows[kv_head];
  }
};

// Checks a caller's parameters, which may be NULL, and fills in defaults. Throws INVALID_ARGUMENT,
// OUT_OF_RANGE for a window or sinks beyond what the layer keeps, bad_alloc.
AttendParams check_params(const pkv_attention_params* params, uint32_t kv_heads, uint32_t key_dim,
                          const Window& of_layer);

struct AttendCall {
  AttendShape shape;
  AttendParams params;
  std::span<const rows::Sequence> sequences;  // the ones with queries
  rows::BatchRows rows;                       // of all sequences
  rows::BatchTensor q, out;

  // Returns the row of a sequence's first query in its part of a bool mask.
  uint64_t mask_row(const rows::Sequence& sequence) const {
    return rows.first(sequence.index, 0, true);
  }
};

// Checks the mask and the lse array, which have a row for each query. Throws INVALID_ARGUMENT if a
// mask row is too short for a sequence or a parent comes after its child, OUT_OF_RANGE if a mask
// row has more words than any step needs, OVERFLOW if masks or lse do not fit into the address
// space.
void check_call(const AttendCall& call);

}  // namespace pkv::attention
