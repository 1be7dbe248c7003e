// The steps before and after attend(): queries become scaled fp32 rows, and partial results become
// the caller's rows. Also merges the results of several calls.
#pragma once

#include "kernels/rotation.hpp"
#include "kernels/softmax.hpp"

namespace pkv::kernels {

template <class Isa>
void prepare(const QueryTask& task) {
  const uint32_t heads = task.heads_per_kv_head, dim = whole_dims(task.key_dim);
  for (uint32_t head = task.head_begin; head < task.head_end; head++) {
    float* q = task.q + (head - task.head_begin) * task.head_rows * dim;
    for (uint64_t query = 0; query < task.queries; query++)
      for (uint32_t i = 0; i < heads; i++, q += dim) {
        const uint64_t query_head = uint64_t{head} * heads + i;
        alignas(64) unsigned char copy[max_dim * 4];
        scale_row<Isa>(task.rows.dtype,
                       whole_row(caller_row(task.rows, query, query_head), task.rows.dtype,
                                 task.key_dim, copy),
                       task.scale, q, dim);
        if (rotates(task.rotation)) rotate<Isa>(task.rotation, task.key_dim, q);
      }
  }
}

// Merges the parts of one row: scales them to their common maximum, adds them in order and
// normalises the sum. result has whole_dims(value_dim) floats. Returns the log-sum-exp if the task
// wants it. If the row saw nothing, it is -infinity, or the sink logit, and all dims are 0.
template <class Isa>
float merge_parts(const FinishTask& task, uint64_t head, uint64_t row, const float* sink_logit,
                  float* result) {
  using F = Floats<Isa>;
  const float infinity = __builtin_inff();
  const uint32_t dim = whole_dims(task.value_dim);
  for (uint32_t d = 0; d < dim; d += F::size) F(0.0f).store_aligned(result + d);
  if (!merged_saw(task, head, row)) return sink_logit != nullptr ? *sink_logit : -infinity;

  float max = merged_max(task, head, row);
  if (sink_logit != nullptr && *sink_logit > max) max = *sink_logit;
  float sum = sink_logit != nullptr ? exp_of_negative<Isa>(*sink_logit - shift_of(max)) : 0.0f;
  for (uint32_t i = 0; i < task.parts; i++) {
    const Partial& part = task.part[i];
    const uint64_t at = row_of_part(part, head, row);
    const float weight = exp_of_negative<Isa>(part.max[at] - shift_of(max));
    // A part whose scores are all -infinity adds nothing to finite scores of other parts. If there
    // are no other parts, the result is 0 / 0.
    if (part.max[at] != -infinity || max == -infinity) sum += weight * part.sum[at];
    const float* out = part.out + at * dim;
    for (uint32_t d = 0; d < dim; d += F::size)
      Isa::fma(F(weight), F::load_unaligned(out + d), F::load_aligned(result + d))
          .store_aligned(result + d);
  }
  const F inverse(1 / sum);
  for (uint32_t d = 0; d < dim; d += F::size)
    (F::load_aligned(result + d) * inverse).store_aligned(result + d);
  return task.lse != nullptr ? max + __builtin_logf(sum) : 0;
}

template <class Isa>
void finish(const FinishTask& task) {
  const uint32_t heads = task.heads_per_kv_head;
  alignas(64) float result[max_dim];
  for (uint32_t head = task.head_begin; head < task.head_end; head++) {
    for (uint64_t query = 0; query < task.queries; query++)
      for (uint32_t i = 0; i < heads; i++) {
        const uint64_t query_head = uint64_t{head} * heads + i;
        const float* sink = task.sink_logits != nullptr ? task.sink_logits + query_head : nullptr;
        const float lse =
            merge_parts<Isa>(task, head - task.head_begin, query * heads + i, sink, result);
        if (rotates(task.rotation)) rotate_back<Isa>(task.rotation, task.value_dim, result);
        put_row<Isa>(result, task.value_dim, task.rows.dtype,
                     caller_row(task.rows, query, query_head));
        if (task.lse != nullptr) task.lse[query * task.lse_stride + query_head] = lse;
      }
  }
}

// Computes the sum of out[i] * exp(lse[i]), divided by the sum of exp(lse[i]).
template <class Isa>
void merge(const MergeTask& task) {
  using F = Floats<Isa>;
  const uint32_t dim = whole_dims(task.dim);
  alignas(64) float merged[max_dim], one[max_dim];
  alignas(64) unsigned char copy[max_dim * 4];
  for (uint64_t row = 0; row < task.rows; row++) {
    for (uint32_t head = 0; head < task.heads; head++) {
      const uint64_t at = row * task.heads + head;
      float max = -__builtin_inff(), sum = 0;
      for (uint32_t i = 0; i < task.count; i++)
        max = lse_of(task, i, at) > max ? lse_of(task, i, at) : max;
      for (uint32_t d = 0; d < dim; d += F::size) F(0.0f).store_aligned(merged + d);
      for (uint32_t i = 0; i < task.count; i++) {
        const float weight = exp_of_negative<Isa>(lse_of(task, i, at) - shift_of(max));
        sum += weight;
        // A call that saw nothing, or almost nothing, adds nothing to the result.
        if (weight == 0.0f) continue;
        const unsigned char* const result =
            whole_row(caller_row(task.out[i], row, head), task.out[i].dtype, task.dim, copy);
        convert_from_rows<Isa, PKV_F32>(task.out[i].dtype, result,
                                        reinterpret_cast<unsigned char*>(one), dim);
        for (uint32_t d = 0; d < dim; d += F::size)
          Isa::fma(F(weight), F::load_aligned(one + d), F::load_aligned(merged + d))
              .store_aligned(merged + d);
      }
      for (uint32_t d = 0; d < dim && sum != 0.0f; d += F::size)
        (F::load_aligned(merged + d) / F(sum)).store_aligned(merged + d);
      put_row<Isa>(merged, task.dim, task.merged.dtype, caller_row(task.merged, row, head));
      if (task.merged_lse != nullptr)
        task.merged_lse[at] = sum == 0.0f ? -__builtin_inff() : max + __builtin_logf(sum);
    }
  }
}

}  // namespace pkv::kernels
