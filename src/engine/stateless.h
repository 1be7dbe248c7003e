// Attention over memory and block tables that the caller owns.
#pragma once

#include <pagedkv/attention.h>

namespace pkv {

// Throws INVALID_ARGUMENT, OUT_OF_RANGE, OVERFLOW, bad_alloc. Follows no block id that the view does not hold.
void attend_stateless(const pkv_kv_view& kv, const pkv_attention_sequences& sequences, const pkv_attention_params* params,
                      const pkv_tensor* q, const pkv_tensor* out);

}  // namespace pkv
