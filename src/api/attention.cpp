// The C functions of attention over K and V in the caller's memory.
#include <pagedkv/attention.h>

#include "api/boundary.h"
#include "api/compute_object.h"
#include "engine/attention/attend.h"

using namespace pkv;
using namespace pkv::api;

pkv_status pkv_attention_merge(pkv_compute compute, size_t n, const pkv_tensor* outs,
                               const float* const* lse, size_t rows, uint32_t heads, uint32_t dim,
                               const pkv_tensor* merged, float* merged_lse) {
  return guarded([&] {
    const ComputeLease lease(compute);
    attention::merge_results(*lease, n, outs, lse, rows, heads, dim, merged, merged_lse);
  });
}

pkv_status pkv_kv_attend(pkv_compute compute, const pkv_kv_view* kv,
                         const pkv_kv_sequences* sequences, const pkv_attention_params* params,
                         const pkv_tensor* q, const pkv_tensor* out,
                         const pkv_attention_outputs* outputs) {
  return guarded([&] {
    const ComputeLease lease(compute);
    attention::attend_stateless(*lease, read_struct(kv, "kv"), read_struct(sequences, "sequences"),
                                params, q, out, outputs);
  });
}
