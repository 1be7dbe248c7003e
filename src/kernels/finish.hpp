// The two ends of an attention call: queries to scaled fp32 rows, and partial results to the caller's rows.
#pragma once

#include "kernels/convert.hpp"
#include "kernels/softmax.hpp"
#include "kernels/transpose.hpp"

namespace pkv {

template <class Isa>
void prepare(const QueryTask& task) {
  const uint64_t rows = uint64_t{task.queries} * task.group;
  const Floats<Isa> scale(task.scale);
  for (uint32_t head = 0; head < task.kv_heads; head++) {
    for (uint64_t row = 0; row < rows; row++) {
      const unsigned char* from = caller_row<Isa>(task.rows, row / task.group, head * uint64_t{task.group} + row % task.group);
      float* q = task.q + (head * rows + row) * task.key_dim;
      convert_to<Isa, PKV_F32>(task.rows.dtype, from, reinterpret_cast<unsigned char*>(q), task.key_dim);
      for (uint32_t d = 0; d < task.key_dim; d += Floats<Isa>::size)
        (Floats<Isa>::load_unaligned(q + d) * scale).store_unaligned(q + d);
    }
  }
}

// One row: its parts are brought to their common maximum, added in order and normalised. result has value_dim floats.
template <class Isa>
void merge_parts(const FinishTask& task, int64_t row, float* result) {
  using F = Floats<Isa>;
  for (uint32_t d = 0; d < task.value_dim; d += F::size) F(0.0f).store_aligned(result + d);
  if (!merged_saw(task, row)) return;

  const float max = merged_max(task, row);
  float sum = 0;
  for (uint32_t part = 0; part < task.parts; part++) {
    const float part_max = task.max[part * task.stat_part_stride + row];
    const float weight = exp_of<Isa>(part_max - shift_of(max));
    // Scores of -infinity only: nothing to add beside finite ones, 0/0 when there are no others.
    if (part_max != -__builtin_inff() || max == -__builtin_inff()) sum += weight * task.sum[part * task.stat_part_stride + row];
    const float* out = task.out + part * task.out_part_stride + row * task.value_dim;
    for (uint32_t d = 0; d < task.value_dim; d += F::size)
      Isa::fma(F(weight), F::load_unaligned(out + d), F::load_aligned(result + d)).store_aligned(result + d);
  }
  for (uint32_t d = 0; d < task.value_dim; d += F::size) (F::load_aligned(result + d) / F(sum)).store_aligned(result + d);
}

template <class Isa>
void finish(const FinishTask& task) {
  const uint64_t rows = uint64_t{task.queries} * task.group;
  alignas(64) float result[max_dim];
  for (uint32_t head = 0; head < task.kv_heads; head++) {
    for (uint64_t row = 0; row < rows; row++) {
      merge_parts<Isa>(task, static_cast<int64_t>(head * rows + row), result);
      convert_from<Isa, PKV_F32>(reinterpret_cast<const unsigned char*>(result), task.rows.dtype,
                                 caller_row<Isa>(task.rows, row / task.group, head * uint64_t{task.group} + row % task.group),
                                 task.value_dim);
    }
  }
}

}  // namespace pkv
