// The kernels in plain C++: one element at a time, each place in memory computed from its definition. For reading, for
// processors without a table of their own, and as what the others are compared with.
#include <cmath>
#include <limits>

#include "kernels/scalar_convert.h"
#include "kernels/tables.h"
#include "kernels/tokens.h"

namespace pkv {

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// The address of every element of a sequence.
template <pkv_dtype dtype, pkv_layout layout>
struct Elements {
  static constexpr uint32_t pair = dtype == PKV_BF16 ? 2 : 1;

  static unsigned char* k(const KvView& kv, uint64_t position, uint32_t head, uint32_t dim) {
    const Slot slot = slot_of(kv, position);
    if (layout == PKV_LAYOUT_PLAIN) return kv.k + k_offset(kv, slot.block, slot.offset, head) + dim * dtype_bytes(dtype);
    const uint32_t token = static_cast<uint32_t>(slot.offset % tile_tokens);
    return kv.k + k_offset(kv, slot.block, slot.offset / tile_tokens, head) +
           packed_k_index(pair, token, dim) * dtype_bytes(dtype);
  }

  static unsigned char* v(const KvView& kv, uint64_t position, uint32_t head, uint32_t dim) {
    const Slot slot = slot_of(kv, position);
    if (layout == PKV_LAYOUT_PLAIN) return kv.v + v_offset(kv, slot.block, slot.offset, head) + dim * dtype_bytes(dtype);
    const uint32_t token = static_cast<uint32_t>(slot.offset % tile_tokens);
    return kv.v + v_offset(kv, slot.block, slot.offset / tile_tokens, head) +
           packed_v_index(pair, kv.value_dim, token, dim) * dtype_bytes(dtype);
  }
};

unsigned char* caller_element(const RowsView& rows, uint64_t row, uint32_t head, uint32_t dim) {
  const int64_t index = static_cast<int64_t>(row) * rows.row_stride + head * rows.head_stride + dim;
  return rows.data + index * dtype_bytes(rows.dtype);
}

template <pkv_dtype dtype, pkv_layout layout>
void attend_row(const AttendTask& task, Range seen, uint32_t head, uint64_t row) {
  using At = Elements<dtype, layout>;
  const KvView& kv = task.kv;
  const float* q = task.q + row * kv.key_dim;
  float* out = task.out + row * kv.value_dim;
  float max = -infinity, sum = 0;
  for (uint32_t d = 0; d < kv.value_dim; d++) out[d] = 0;

  for (uint64_t position = seen.begin; position < seen.end; position++) {
    float score = 0;
    for (uint32_t d = 0; d < kv.key_dim; d++) score += q[d] * scalar::load(dtype, At::k(kv, position, head, d));
    if (score > max) {
      const float keep = std::exp(max - score);
      for (uint32_t d = 0; d < kv.value_dim; d++) out[d] *= keep;
      sum *= keep;
      max = score;
    }
    const float weight = std::exp(score - shift_of(max));
    sum += weight;
    for (uint32_t d = 0; d < kv.value_dim; d++) out[d] += weight * scalar::load(dtype, At::v(kv, position, head, d));
  }
  close_row(seen.begin < seen.end, &max, &sum);
  task.max[row] = max;
  task.sum[row] = sum;
}

template <pkv_dtype dtype, pkv_layout layout>
void attend(const AttendTask& task) {
  const uint64_t rows = uint64_t{task.queries} * task.group;
  for (uint32_t head = 0; head < task.kv.kv_heads; head++)
    for (uint64_t row = 0; row < rows; row++)
      attend_row<dtype, layout>(task, seen_by(task, row / task.group), head, head * rows + row);
}

template <pkv_dtype dtype, pkv_layout layout>
void store(const CopyTask& task) {
  using At = Elements<dtype, layout>;
  const KvView& kv = task.kv;
  for (uint64_t i = 0; i < task.count; i++) {
    for (uint32_t head = 0; head < kv.kv_heads; head++) {
      for (uint32_t d = 0; task.k.data != nullptr && d < kv.key_dim; d++)
        scalar::convert(task.k.dtype, caller_element(task.k, i, head, d), dtype, At::k(kv, task.first + i, head, d));
      for (uint32_t d = 0; task.v.data != nullptr && d < kv.value_dim; d++)
        scalar::convert(task.v.dtype, caller_element(task.v, i, head, d), dtype, At::v(kv, task.first + i, head, d));
    }
  }
}

template <pkv_dtype dtype, pkv_layout layout>
void load(const CopyTask& task) {
  using At = Elements<dtype, layout>;
  const KvView& kv = task.kv;
  for (uint64_t i = 0; i < task.count; i++) {
    for (uint32_t head = 0; head < kv.kv_heads; head++) {
      for (uint32_t d = 0; task.k.data != nullptr && d < kv.key_dim; d++)
        scalar::convert(dtype, At::k(kv, task.first + i, head, d), task.k.dtype, caller_element(task.k, i, head, d));
      for (uint32_t d = 0; task.v.data != nullptr && d < kv.value_dim; d++)
        scalar::convert(dtype, At::v(kv, task.first + i, head, d), task.v.dtype, caller_element(task.v, i, head, d));
    }
  }
}

void prepare(const QueryTask& task) {
  const uint64_t rows = uint64_t{task.queries} * task.group;
  for (uint32_t head = 0; head < task.kv_heads; head++) {
    for (uint64_t row = 0; row < rows; row++) {
      const uint32_t query_head = head * task.group + static_cast<uint32_t>(row % task.group);
      float* q = task.q + (head * rows + row) * task.key_dim;
      for (uint32_t d = 0; d < task.key_dim; d++)
        q[d] = scalar::load(task.rows.dtype, caller_element(task.rows, row / task.group, query_head, d)) * task.scale;
    }
  }
}

void finish_row(const FinishTask& task, int64_t row, uint64_t query, uint32_t query_head) {
  const float max = merged_max(task, row);
  const bool saw = merged_saw(task, row);
  float sum = 0;
  for (uint32_t part = 0; part < task.parts; part++) {
    const float m = task.max[part * task.stat_part_stride + row], s = task.sum[part * task.stat_part_stride + row];
    // Scores of -infinity only: nothing to add beside finite ones, 0/0 when there are no others.
    if (m != -infinity || max == -infinity) sum += s * std::exp(m - shift_of(max));
  }
  for (uint32_t d = 0; d < task.value_dim; d++) {
    float value = 0;
    for (uint32_t part = 0; part < task.parts; part++) {
      const float weight = std::exp(task.max[part * task.stat_part_stride + row] - shift_of(max));
      value += weight * task.out[part * task.out_part_stride + row * task.value_dim + d];
    }
    scalar::store(task.rows.dtype, caller_element(task.rows, query, query_head, d), saw ? value / sum : 0.0f);
  }
}

void finish(const FinishTask& task) {
  const uint64_t rows = uint64_t{task.queries} * task.group;
  for (uint32_t head = 0; head < task.kv_heads; head++)
    for (uint64_t row = 0; row < rows; row++)
      finish_row(task, static_cast<int64_t>(head * rows + row), row / task.group,
                 head * task.group + static_cast<uint32_t>(row % task.group));
}

template <pkv_dtype dtype, pkv_layout layout>
constexpr KvKernels kv_kernels = {attend<dtype, layout>, store<dtype, layout>, load<dtype, layout>};

}  // namespace

constexpr Kernels scalar_kernels = {
    PKV_ISA_SCALAR,
    {kv_kernels<PKV_F32, PKV_LAYOUT_PACKED>, kv_kernels<PKV_F16, PKV_LAYOUT_PACKED>, kv_kernels<PKV_BF16, PKV_LAYOUT_PACKED>},
    {kv_kernels<PKV_F32, PKV_LAYOUT_PLAIN>, kv_kernels<PKV_F16, PKV_LAYOUT_PLAIN>, kv_kernels<PKV_BF16, PKV_LAYOUT_PLAIN>},
    prepare,
    finish};

}  // namespace pkv
