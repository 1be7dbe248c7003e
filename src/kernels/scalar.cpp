// The kernels in plain C++: one element at a time, and each address computed from its definition.
// They are the readable reference to which tests compare the others, and run on CPUs that have no
// other table.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/instruction_sets.h"
#include "kernels/scalar_convert.h"
#include "kernels/scalar_rotation.h"
#include "kernels/tile_layout.h"
#include "kernels/tokens.h"

namespace pkv::kernels {

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float min_quantised = 1e-30f;

// One stored row, in either layout.
class StoredRow {
 public:
  StoredRow(const KvView& kv, const SideView& side, Side which, uint64_t position, uint32_t head)
      : side_(side), format_(format_of(side)), which_(which) {
    const Slot slot = slot_of(kv, position);
    packed_ = kv.layout == PKV_LAYOUT_PACKED;
    token_ = static_cast<uint32_t>(slot.offset % tile_tokens);
    at_ = row_address(side, row_of(kv, position), head);
  }

  float get(uint32_t dim) const {
    if (dim >= format_.dim) return 0;
    const uint32_t i = index(dim);
    switch (format_.dtype) {
      case PKV_Q8_0:
      case PKV_Q4_0:
        return get_of_block(at_ + row_bytes(format_.dtype, dim / block_dims * block_dims),
                            dim % block_dims);
      case PKV_INT8:
        return scale_of(dim) * static_cast<float>(static_cast<int8_t>(at_[i]));
      case PKV_INT4:
        return scale_of(dim) *
               static_cast<float>(static_cast<int8_t>(at_[i / 2] << (i % 2 != 0 ? 0 : 4)) >> 4);
      default:
        return scalar::load(format_.dtype, element(i));
    }
  }

  void set(const float* row) {
    if (side_.dtype == PKV_INT8) set_int8(row);
    for (uint32_t begin = 0; begin < side_.dim && side_.dtype == PKV_INT4; begin += int4_group_size)
      set_int4(row, begin);
    for (uint32_t d = 0; d < format_.dim && scales_per_row(side_.dtype, side_.dim) == 0; d++)
      scalar::store(format_.dtype, element(index(d)), row[d]);
  }
  unsigned char* element(uint32_t i) const { return at_ + i * element_bits(format_.dtype) / 8; }
  uint32_t index(uint32_t dim) const {
    if (!packed_) return dim;
    return which_ == Side::k ? packed_k_index(side_.dtype, token_, dim)
                             : packed_v_index(side_.dtype, side_.dim, token_, dim);
  }

  void copy_bits(const StoredRow& from) {
    for (uint32_t d = 0; d < side_.dim; d++) {
      if (side_.dtype == PKV_INT4)
        set_nibble(d, from.at_[from.index(d) / 2] >> (from.index(d) % 2 * 4) & 15);
      else
        std::memcpy(element(index(d)), from.element(from.index(d)), element_bits(side_.dtype) / 8);
    }
    for (uint32_t i = 0; i < scales_per_row(side_.dtype, side_.dim); i++)
      std::memcpy(scale_at(i), from.scale_at(i), scale_bytes(side_.dtype));
  }

 private:
  unsigned char* scale_at(uint32_t i) const {
    unsigned char* const scales =
        at_ + elements_bytes(side_.dtype, side_.dim) * (packed_ ? tile_tokens : 1);
    return scales + (packed_ ? i * tile_tokens + token_ : i) * scale_bytes(side_.dtype);
  }

  float get_of_block(const unsigned char* block, uint32_t dim) const {
    const float scale = scalar::load(PKV_F16, block);
    block += scale_bytes(format_.dtype);
    if (format_.dtype == PKV_Q8_0)
      return scale * static_cast<float>(static_cast<int8_t>(block[dim]));
    return scale * static_cast<float>((dim < 16 ? block[dim] & 15 : block[dim - 16] >> 4) - 8);
  }

  float scale_of(uint32_t dim) const {
    if (side_.dtype == PKV_INT8) return scalar::load(PKV_F32, scale_at(0));
    return scalar::load(PKV_BF16, scale_at(dim / int4_group_size));
  }

  // Returns the largest magnitude, or NaN if an element is not finite.
  static float largest(const float* row, uint32_t n) {
    float max_magnitude = 0;
    for (uint32_t i = 0; i < n; i++)
      max_magnitude = std::isfinite(row[i]) && !std::isnan(max_magnitude)
                          ? std::max(max_magnitude, std::fabs(row[i]))
                          : NAN;
    return max_magnitude;
  }

  void set_int8(const float* row) {
    const float max_magnitude = largest(row, side_.dim);
    const float scale = max_magnitude < min_quantised ? 0.0f : max_magnitude / 127.0f,
                inverse = max_magnitude >= min_quantised ? 127.0f / max_magnitude : 0.0f;
    for (uint32_t d = 0; d < side_.dim; d++) {
      const float x = std::isfinite(row[d]) ? std::nearbyint(row[d] * inverse) : 0.0f;
      at_[index(d)] =
          static_cast<unsigned char>(static_cast<int8_t>(std::clamp(x, -127.0f, 127.0f)));
    }
    std::memcpy(scale_at(0), &scale, sizeof scale);
  }

  void set_int4(const float* row, uint32_t begin) {
    const uint32_t n = std::min(int4_group_size, side_.dim - begin);
    const float max_magnitude = largest(row + begin, n);
    uint16_t scale = 0;
    if (std::isnan(max_magnitude))
      scale = 0x7FC0;
    else if (max_magnitude >= min_quantised)
      scale =
          static_cast<uint16_t>((std::bit_cast<uint32_t>(max_magnitude / 7.0f) + 0xFFFFu) >> 16);
    const float inverse = max_magnitude >= min_quantised ? 1.0f / scalar::bf16_to_f32(scale) : 0.0f;
    for (uint32_t d = begin; d < begin + n; d++) {
      const float x = std::isfinite(row[d]) ? std::nearbyint(row[d] * inverse) : 0.0f;
      set_nibble(d, static_cast<int>(std::clamp(x, -7.0f, 7.0f)) & 15);
    }
    std::memcpy(scale_at(begin / int4_group_size), &scale, sizeof scale);
  }

  void set_nibble(uint32_t dim, int nibble) {
    const uint32_t i = index(dim);
    at_[i / 2] = static_cast<unsigned char>((at_[i / 2] & (i % 2 != 0 ? 0x0F : 0xF0)) |
                                            nibble << (i % 2 * 4));
  }

  const SideView& side_;
  const RowFormat format_;
  const Side which_;
  bool packed_;
  uint32_t token_;
  unsigned char* at_;
};

float value_of(const KvView& kv, uint64_t position, uint32_t head, uint32_t dim) {
  if (kv.v.data == nullptr) return StoredRow(kv, kv.k, Side::k, position, head).get(dim);
  return StoredRow(kv, kv.v, Side::v, position, head).get(dim);
}

unsigned char* caller_element(const RowsView& rows, uint64_t row, uint32_t head, uint32_t dim) {
  const int64_t index = static_cast<int64_t>(row) * rows.row_stride + head * rows.head_stride + dim;
  return rows.data + index * dtype_bytes(rows.dtype);
}

float score_of(const AttendTask& task, const float* q, const QueryView& query, uint32_t head,
               uint32_t query_head, uint64_t position) {
  const StoredRow k(task.kv, task.kv.k, Side::k, position, head);
  float score = 0;
  for (uint32_t d = 0; d < task.kv.k.dim; d++) score += q[d] * k.get(d);
  if (task.transform.softcap != 0)
    score = task.transform.softcap * std::tanh(score / task.transform.softcap);
  if (task.transform.alibi_slopes != nullptr) {
    auto distance = static_cast<float>(static_cast<int64_t>(position - query.position));
    if (task.transform.key_shifts != nullptr && position >= task.transform.shifts_begin)
      distance += task.transform.key_shifts[position - task.transform.shifts_begin];
    score += task.transform.alibi_slopes[query_head] * distance;
  }
  if (query.bias == nullptr || position < query.mask_begin) return score;
  const pkv_dtype dtype = task.transform.bias_dtype;
  const float factor =
      task.transform.bias_factors != nullptr ? task.transform.bias_factors[query_head] : 1;
  return score + factor * scalar::load(dtype, query.bias + (position - query.mask_begin) *
                                                               dtype_bytes(dtype));
}

void attend_row(const AttendTask& task, uint32_t head, uint64_t row) {
  const KvView& kv = task.kv;
  const uint64_t index =
      (head - task.head_begin) * uint64_t{task.queries} * task.heads_per_kv_head + row;
  const QueryView& query = task.query[row / task.heads_per_kv_head];
  const uint32_t query_head =
      head * task.heads_per_kv_head + static_cast<uint32_t>(row % task.heads_per_kv_head);
  float* out = task.out + index * kv.v.dim;
  float max = -infinity, sum = 0;
  bool saw = false;
  for (uint32_t d = 0; d < kv.v.dim; d++) out[d] = 0;

  for (uint64_t position = task.begin; position < task.end; position++) {
    const uint64_t tile = position / tile_tokens * tile_tokens;
    if ((seen_in_tile(task, query, tile) >> (position - tile) & 1) == 0) continue;
    saw = true;
    const float score =
        score_of(task, task.q + index * kv.k.dim, query, head, query_head, position);
    if (score > max) {
      const float keep = std::exp(max - score);
      for (uint32_t d = 0; d < kv.v.dim; d++) out[d] *= keep;
      sum *= keep;
      max = score;
    }
    const float weight = std::exp(score - shift_of(max));
    sum += weight;
    for (uint32_t d = 0; d < kv.v.dim; d++) out[d] += weight * value_of(kv, position, head, d);
  }
  close_row(saw, &max, &sum);
  task.max[index] = max;
  task.sum[index] = sum;
}

void attend(const AttendTask& task) {
  for (uint32_t head = task.head_begin; head < task.head_end; head++)
    for (uint64_t row = 0; row < uint64_t{task.queries} * task.heads_per_kv_head; row++)
      attend_row(task, head, row);
}

size_t attend_scratch_bytes(const AttendTask&) { return 0; }

void store_side(const KvView& kv, const SideView& side, Side which, uint64_t first, uint64_t count,
                const RowsView& from) {
  // NaN keeps its bits if elements are neither scaled nor rotated.
  const RowFormat format = format_of(side);
  const bool as_they_are = scales_per_row(format.dtype, format.dim) == 0 && !rotates(side.rotation);
  float row[max_dim];
  for (uint64_t i = 0; i < count; i++) {
    for (uint32_t head = 0; head < kv.kv_heads; head++) {
      StoredRow stored(kv, side, which, first + i, head);
      for (uint32_t d = 0; d < format.dim; d++) {
        const unsigned char* given = caller_element(from, i, head, d);
        if (as_they_are)
          scalar::convert(from.dtype, given, format.dtype, stored.element(stored.index(d)));
        else
          row[d] = scalar::load(from.dtype, given);
      }
      if (rotates(side.rotation)) scalar::rotate(side.rotation, side.dim, row);
      if (!as_they_are) stored.set(row);
    }
  }
}

void store(const CopyTask& task) {
  if (task.k.data != nullptr)
    store_side(task.kv, task.kv.k, Side::k, task.first, task.count, task.k);
  if (task.v.data != nullptr && task.kv.v.data != nullptr)
    store_side(task.kv, task.kv.v, Side::v, task.first, task.count, task.v);
}

void load_rotated(const SideView& side, const StoredRow& stored, uint32_t dims, const RowsView& to,
                  uint64_t row, uint32_t head) {
  float whole[max_dim];
  for (uint32_t d = 0; d < side.dim; d++) whole[d] = stored.get(d);
  scalar::rotate_back(side.rotation, side.dim, whole);
  for (uint32_t d = 0; d < dims; d++)
    scalar::store(to.dtype, caller_element(to, row, head, d), whole[d]);
}

void load_side(const KvView& kv, const SideView& side, Side which, uint32_t dims, uint64_t first,
               uint64_t count, const RowsView& to) {
  for (uint64_t i = 0; i < count; i++) {
    for (uint32_t head = 0; head < kv.kv_heads; head++) {
      const StoredRow stored(kv, side, which, first + i, head);
      if (rotates(side.rotation)) {
        load_rotated(side, stored, dims, to, i, head);
        continue;
      }
      for (uint32_t d = 0; d < dims; d++) {
        if (const RowFormat format = format_of(side); scales_per_row(format.dtype, format.dim) == 0)
          scalar::convert(format.dtype, stored.element(stored.index(d)), to.dtype,
                          caller_element(to, i, head, d));
        else
          scalar::store(to.dtype, caller_element(to, i, head, d), stored.get(d));
      }
    }
  }
}

void load(const CopyTask& task) {
  const bool latent = task.kv.v.data == nullptr;
  if (task.k.data != nullptr)
    load_side(task.kv, task.kv.k, Side::k, format_of(task.kv.k).dim, task.first, task.count,
              task.k);
  if (task.v.data != nullptr)
    load_side(task.kv, latent ? task.kv.k : task.kv.v, latent ? Side::k : Side::v,
              format_of(task.kv.v).dim, task.first, task.count, task.v);
}

void transfer(const TransferTask& task) {
  const auto row = [](const KvView& kv, const SideView& side, Side which, uint64_t position,
                      uint32_t head) { return StoredRow(kv, side, which, position, head); };
  for (uint64_t i = 0; i < task.count; i++) {
    const uint64_t to = task.to_first + i, from = task.from_first + i;
    for (uint32_t head = 0; head < task.to.kv_heads; head++) {
      if (task.to.k.data != nullptr && task.from.k.data != nullptr)
        row(task.to, task.to.k, Side::k, to, head)
            .copy_bits(row(task.from, task.from.k, Side::k, from, head));
      if (task.to.v.data != nullptr && task.from.v.data != nullptr)
        row(task.to, task.to.v, Side::v, to, head)
            .copy_bits(row(task.from, task.from.v, Side::v, from, head));
    }
  }
}

void prepare(const QueryTask& task) {
  const uint64_t rows = uint64_t{task.queries} * task.heads_per_kv_head;
  for (uint32_t head = task.head_begin; head < task.head_end; head++) {
    for (uint64_t row = 0; row < rows; row++) {
      const uint32_t query_head =
          head * task.heads_per_kv_head + static_cast<uint32_t>(row % task.heads_per_kv_head);
      const uint32_t dim = whole_dims(task.key_dim);
      float* q = task.q + ((head - task.head_begin) * task.head_rows + row) * dim;
      for (uint32_t d = task.key_dim; d < dim; d++) q[d] = 0;
      for (uint32_t d = 0; d < task.key_dim; d++)
        q[d] = scalar::load(task.rows.dtype, caller_element(task.rows, row / task.heads_per_kv_head,
                                                            query_head, d)) *
               task.scale;
      if (rotates(task.rotation)) scalar::rotate(task.rotation, task.key_dim, q);
    }
  }
}

void finish_row(const FinishTask& task, uint32_t head, uint64_t row) {
  const uint64_t part_head = head - task.head_begin, query = row / task.heads_per_kv_head;
  const uint32_t query_head =
      head * task.heads_per_kv_head + static_cast<uint32_t>(row % task.heads_per_kv_head);
  const bool saw = merged_saw(task, part_head, row), sinks = task.sink_logits != nullptr;
  const float sink = sinks ? task.sink_logits[query_head] : -infinity;
  const float max = std::max(merged_max(task, part_head, row), sink);
  float sum = sinks ? std::exp(sink - shift_of(max)) : 0.0f;
  for (uint32_t i = 0; i < task.parts; i++) {
    const uint64_t at = row_of_part(task.part[i], part_head, row);
    const float m = task.part[i].max[at];
    // A part whose scores are all -infinity adds nothing to finite scores of other parts. If there
    // are no other parts, the result is 0 / 0.
    if (m != -infinity || max == -infinity)
      sum += task.part[i].sum[at] * std::exp(m - shift_of(max));
  }
  float result[max_dim];
  for (uint32_t d = 0; d < task.value_dim; d++) {
    float value = 0;
    for (uint32_t i = 0; i < task.parts; i++) {
      const uint64_t at = row_of_part(task.part[i], part_head, row);
      value += std::exp(task.part[i].max[at] - shift_of(max)) *
               task.part[i].out[at * whole_dims(task.value_dim) + d];
    }
    result[d] = saw ? value / sum : 0.0f;
  }
  if (rotates(task.rotation)) scalar::rotate_back(task.rotation, task.value_dim, result);
  for (uint32_t d = 0; d < task.value_dim; d++)
    scalar::store(task.rows.dtype, caller_element(task.rows, query, query_head, d), result[d]);
  if (task.lse != nullptr)
    task.lse[query * task.lse_stride + query_head] = saw ? max + std::log(sum) : sink;
}

void finish(const FinishTask& task) {
  for (uint32_t head = task.head_begin; head < task.head_end; head++)
    for (uint64_t row = 0; row < uint64_t{task.queries} * task.heads_per_kv_head; row++)
      finish_row(task, head, row);
}

void score_blocks(const ScoreTask& task) {
  for (uint32_t i = 0; i < task.count; i++) {
    const uint16_t* const bounds = task.bounds + uint64_t{task.blocks[i]} * 2 * task.dim;
    float score = 0;
    for (uint32_t d = 0; d < task.dim; d++)
      score += task.largest[d] * scalar::bf16_to_f32(bounds[d]) +
               task.smallest[d] * scalar::bf16_to_f32(bounds[task.dim + d]);
    task.scores[i] = std::isnan(score) ? infinity : score;
  }
}

size_t weigh_scratch_bytes(const WeighTask&) { return 0; }

void weigh_blocks(const WeighTask& task) {
  const AttendTask& attend = task.attend;
  for (uint32_t row = 0; row < attend.queries * attend.heads_per_kv_head; row++) {
    const uint32_t index = row / attend.heads_per_kv_head, head = row % attend.heads_per_kv_head;
    const float lse = task.lse[index * task.lse_stride + head];
    for (uint64_t position = attend.begin; position < attend.end; position++) {
      const uint64_t tile = position / tile_tokens * tile_tokens;
      if ((seen_in_tile(attend, attend.query[index], tile) >> (position - tile) & 1) == 0) continue;
      const float score = score_of(attend, attend.q + size_t{row} * attend.kv.k.dim,
                                   attend.query[index], attend.head_begin,
                                   attend.head_begin * attend.heads_per_kv_head + head, position);
      task.weights[head * task.weights_stride + position / attend.kv.block_size] +=
          std::exp(score - lse);
    }
  }
}

void merge(const MergeTask& task) {
  for (uint64_t row = 0; row < task.rows; row++) {
    for (uint32_t head = 0; head < task.heads; head++) {
      const uint64_t at = row * task.heads + head;
      float max = -infinity, sum = 0;
      for (uint32_t i = 0; i < task.count; i++) max = std::max(max, lse_of(task, i, at));
      for (uint32_t i = 0; i < task.count; i++)
        sum += std::exp(lse_of(task, i, at) - shift_of(max));
      for (uint32_t d = 0; d < task.dim; d++) {
        float value = 0;
        for (uint32_t i = 0; i < task.count; i++) {
          const float weight = std::exp(lse_of(task, i, at) - shift_of(max));
          if (weight != 0)
            value +=
                weight * scalar::load(task.out[i].dtype, caller_element(task.out[i], row, head, d));
        }
        scalar::store(task.merged.dtype, caller_element(task.merged, row, head, d),
                      sum != 0 ? value / sum : 0.0f);
      }
      if (task.merged_lse != nullptr)
        task.merged_lse[at] = sum != 0 ? max + std::log(sum) : -infinity;
    }
  }
}

}  // namespace

constexpr Table scalar_table = {PKV_ISA_SCALAR,
                                prepare,
                                attend_scratch_bytes,
                                attend,
                                finish,
                                score_blocks,
                                weigh_scratch_bytes,
                                weigh_blocks,
                                merge,
                                store,
                                load,
                                transfer};

}  // namespace pkv::kernels
