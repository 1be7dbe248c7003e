// Attention over a ragged set of sequences: checks -> views -> work split -> kernels -> merge.
#pragma once

#include <pagedkv/attention.h>

#include <span>

#include "base/parallel.h"
#include "engine/scratch.h"
#include "kernels/kernels.h"

namespace pkv {

// One sequence of an attention call.
struct AttendSequence {
  KvView kv;
  uint64_t length;   // positions that hold keys, the queries' own included
  uint32_t queries;  // the last of them
  uint64_t row;      // first row in q and out
};

struct AttendShape {
  uint32_t query_heads, kv_heads, key_dim, value_dim;
  pkv_dtype dtype;
};

// What a caller asked for, defaults filled in.
struct AttendParams {
  float scale;
  bool causal;
  uint32_t window;  // 0: none
};

// window_of_layer stands for PKV_WINDOW_OF_LAYER. Throws INVALID_ARGUMENT, OUT_OF_RANGE.
AttendParams check_params(const pkv_attention_params* params, uint32_t key_dim, uint32_t window_of_layer);

// The parameters nobody has set: causal, default scale, the window of the layer.
pkv_attention_params default_params();

struct AttendCall {
  AttendShape shape;
  AttendParams params;
  std::span<const AttendSequence> sequences;
  RowsView q, out;
};

void attend(Workers& workers, ScratchPool& scratch, const Kernels& kernels, const KvKernels& kv_kernels, const AttendCall& call);

}  // namespace pkv
