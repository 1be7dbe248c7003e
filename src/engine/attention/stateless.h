// Attention over memory and block tables that the caller owns: no cache is needed, so everything
// that a cache would know is checked with each call.
#pragma once

#include <pagedkv/attention.h>

#include "engine/attention/compute.h"

namespace pkv::attention {

// Writes the outputs of all queries. No block id beyond those of the view is followed. Throws
// INVALID_ARGUMENT, OUT_OF_RANGE, OVERFLOW, bad_alloc; then no output is written.
void attend_stateless(Compute& compute, const pkv_kv_view& kv,
                      const pkv_attention_sequences& sequences, const pkv_attention_params* params,
                      const pkv_tensor* q, const pkv_tensor* out);

// Merges `count` results over the same queries, each of some part of the tokens, into one by their
// log-sum-exp. Throws INVALID_ARGUMENT, OUT_OF_RANGE, OVERFLOW, bad_alloc; then nothing is written.
void merge_states(const Compute& compute, size_t count, const pkv_tensor* outs,
                  const float* const* lse, uint64_t rows, uint32_t heads, uint32_t dim,
                  const pkv_tensor* merged, float* merged_lse);

}  // namespace pkv::attention
