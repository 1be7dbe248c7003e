// Attention over memory and block tables that the caller owns.
#pragma once

#include <pagedkv/attention.h>

namespace pkv::attention {

// Throws INVALID_ARGUMENT, OUT_OF_RANGE, OVERFLOW, bad_alloc. Follows no block id that the view
// does not hold.
void attend_stateless(const pkv_kv_view& kv, const pkv_attention_sequences& sequences,
                      const pkv_attention_params* params, const pkv_tensor* q,
                      const pkv_tensor* out);

// Results of several calls over the same queries into one, by their log-sum-exp.
void merge_states(size_t count, const pkv_tensor* outs, const float* const* lse, uint64_t rows,
                  uint32_t heads, uint32_t dim, const pkv_tensor* merged, float* merged_lse);

}  // namespace pkv::attention
