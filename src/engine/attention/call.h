// The description of one attention call: sequences with their K and V, queries, outputs and
// parameters. A batch and pkv_attention() make it from arguments that they have checked.
#pragma once

#include <pagedkv/attention.h>

#include <span>

#include "kernels/views.h"

namespace pkv::attention {

// One sequence of an attention call. Its queries are those of its last positions.
struct AttendSequence {
  kernels::KvView kv;
  uint64_t length;     // positions with K and V, those of the queries included
  uint32_t queries;    // how many queries it has
  uint64_t first_row;  // of its queries in q and out
};

struct AttendShape {
  uint32_t query_heads, kv_heads, key_dim, value_dim;
  pkv_dtype key_dtype, value_dtype;
};

// A caller's pkv_attention_params with defaults filled in.
struct AttendParams {
  float scale;
  bool causal;
  uint32_t window;  // 0: none
  uint32_t sinks;   // 0 without a window
  kernels::ScoreTransform transform;
  const float* sink_logits;
  const uint64_t* mask;
  uint64_t mask_words;
  float* lse;
};

// Checks a caller's parameters, which may be NULL, and fills in defaults. PKV_WINDOW_OF_LAYER and
// PKV_SINKS_OF_LAYER become the window and the sinks given here. Throws INVALID_ARGUMENT, and
// OUT_OF_RANGE for a window or sinks beyond what the layer keeps.
AttendParams check_params(const pkv_attention_params* params, uint32_t key_dim,
                          uint32_t window_of_layer, uint32_t sinks_of_layer);

// Causal, with the default scale and the window and sinks of the layer.
pkv_attention_params default_params();

struct AttendCall {
  AttendShape shape;
  AttendParams params;
  std::span<const AttendSequence> sequences;
  kernels::RowsView q, out;
};

// Checks the mask and the lse array, which have a row for each query. Throws INVALID_ARGUMENT if a
// mask row has too few bits for the queries of a sequence, OUT_OF_RANGE if it has more words than
// any step needs, OVERFLOW if mask or lse would not fit into the address space.
void check_call(const AttendCall& call);

}  // namespace pkv::attention
