// What one attention call is about, checked: sequences with their keys and values, queries,
// outputs.
#pragma once

#include <pagedkv/attention.h>

#include <span>

#include "kernels/views.h"

namespace pkv::attention {

// One sequence of an attention call.
struct AttendSequence {
  kernels::KvView kv;
  uint64_t length;   // positions that hold keys, the queries' own included
  uint32_t queries;  // the last of them
  uint64_t row;      // first row in q and out
};

struct AttendShape {
  uint32_t query_heads, kv_heads, key_dim, value_dim;
  pkv_dtype key_dtype, value_dtype;
};

// What a caller asked for, defaults filled in.
struct AttendParams {
  float scale;
  bool causal;
  uint32_t window;  // 0: none
  uint32_t sinks;
  kernels::ScoreTransform transform;
  const float* sink_logits;
  const uint64_t* mask;
  uint64_t mask_words;
  float* lse;
};

// The layer's window and sinks stand for PKV_WINDOW_OF_LAYER and PKV_SINKS_OF_LAYER. Throws
// INVALID_ARGUMENT, OUT_OF_RANGE.
AttendParams check_params(const pkv_attention_params* params, uint32_t key_dim,
                          uint32_t window_of_layer, uint32_t sinks_of_layer);

// The parameters nobody has set: causal, default scale, the window and sinks of the layer.
pkv_attention_params default_params();

struct AttendCall {
  AttendShape shape;
  AttendParams params;
  std::span<const AttendSequence> sequences;
  kernels::RowsView q, out;
};

// Checks what belongs to rows of the caller: throws INVALID_ARGUMENT if the mask does not reach
// every query of a sequence, OUT_OF_RANGE if its rows are longer than any step, OVERFLOW for sizes
// of mask and lse beyond the address space.
void check_call(const AttendCall& call);

}  // namespace pkv::attention
