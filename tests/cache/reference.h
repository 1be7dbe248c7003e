// Textbook attention in double precision over keys and values as they are stored, and the largest
// error that fp32 may have.
//
// Let u = 2^-24, D the key dim, n the positions seen, L(m) = 6 sqrt(m) u: what the roundings of a
// sum of m terms add up to, in any order, with a probability of failure far below one in a million
// (Higham and Mary 2019). Then
//   a product    s = scale q.k is off by e = (L(D) + 3 u) A, where A is the largest
//                scale * sum |q k| over the positions,
//                + 2^-16 A where q is split into two bf16 numbers: avx512_bf16 and neon_bf16 on
//                stored bf16, avx512_bf16 on fp8
//                + 2^-15 A where q and k are two bf16 numbers each and the product of two second
//                ones is left out: amx on stored f16, many rows, for outputs of f16
//                + 2^-15 max|scale q| sum |k| where q is rounded to integers: int8 and int4
//   a score      cap(s) + slope distance + mask is off by 16 u softcap more (tanh from an exp
//   within 4 u,
//                a sum, a quotient and a product) and by 2 u (|slope distance| + |mask|)
//   a weight     exp(s - max) is off by w = 2 e + 6 u S + 4 u, relative, where S is the largest
//                magnitude of a score, and by 2^-126, below which it becomes 0
//   an output    sum(weight v) / sum(weight) is off by (2 w + 2 L(n + 8)) sum(p |v|), and one
//                rounding to its dtype
//                + 2^-15 M |v| / scale of v for each position, where weights are rounded to
//                integers (int8 and int4) and M is the largest p * scale of v in its 32 positions;
//                128 for avx2, avx_vnni, avx512_vnni and avx512_bf16, many rows
//                + 2^-8 sum(p |v|) where weights are rounded to bf16, for outputs of bf16:
//                avx512_bf16, stored bf16 or few rows of fp8; neon_bf16, many rows of stored bf16;
//                amx, many rows
//                + 2^-15 sum(p |v|) where they are rounded to two bf16 numbers: amx, many rows,
//                outputs of f16
//   an lse       log(sum exp(s)) is off by w + L(n + 8) + 3 u (|lse| + 1)
// Results that are merged by their lse have the errors of the parts, those of two lse, and 8 u for
// the merge.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "../support/rows.h"

namespace cache_test {

// The instruction set that caches choose.
inline pkv_isa chosen_isa() {
  static const pkv_isa isa = [] {
    auto info = made<pkv_compute_info>();
    CHECK(pkv_compute_get_info(nullptr, &info));
    return info.isa;
  }();
  return isa;
}

struct Attention {
  bool causal = true;
  // A window of 0 is none.
  uint32_t window = 0, sinks = 0;
  // A scale of 0 is 1 / sqrt(key_dim).
  float scale = 0;
  float softcap = 0;
  // Each has [query_heads] numbers, or none.
  std::vector<float> alibi_slopes, sink_logits;
  // Has [rows][mask_words] words, or none.
  std::vector<uint64_t> mask;
  uint64_t mask_words = 0;
  // The types in which they are stored.
  pkv_dtype keys = PKV_F32, values = PKV_F32;
  // The results were merged by pkv_attention_merge.
  bool merged = false;
  // The set that computes; AUTO: any, so that the tolerance is the largest of all.
  pkv_isa isa = chosen_isa();

  bool sees(size_t row, uint64_t position, uint64_t start, uint64_t length, uint64_t j) const {
    if (!mask.empty() && j >= start)
      return (mask[row * mask_words + (j - start) / 64] >> ((j - start) % 64) & 1) != 0;
    const bool near =
        window == 0 || j < sinks || (j + window > position && (causal || position + window > j));
    return near && j < (causal ? position + 1 : length);
  }

  // Returns the library's form of the parameters. lse has [rows][query_heads] numbers, or is NULL.
  AttentionParams params(float* lse = nullptr) const {
    AttentionParams given;
    given.bidirectional = !causal;
    given.window = window;
    given.sink_tokens = sinks == 0 ? PKV_NO_SINK_TOKENS : sinks;
    given.scale = scale;
    given.softcap = softcap;
    given.alibi_slopes = alibi_slopes.empty() ? nullptr : alibi_slopes.data();
    given.sink_logits = sink_logits.empty() ? nullptr : sink_logits.data();
    if (!mask.empty()) given.see_bits(mask.data(), static_cast<int64_t>(mask_words));
    given.outputs.lse = lse;
    return given;
  }
};

// Returns the attention that fits what a layer of this model stores.
inline Attention attention_of(const Model& model, pkv_isa isa = chosen_isa()) {
  return Attention{.window = model.window,
                   .sinks = model.sinks,
                   .keys = model.dtype,
                   .values = model.values_dtype(),
                   .isa = isa};
}

inline bool integers(pkv_dtype dtype) { return dtype == PKV_INT8 || dtype == PKV_INT4; }

// How many dims share a scale, and the largest magnitude among them in units of the scale.
inline uint32_t scaled_dims(pkv_dtype dtype, uint32_t dim) { return dtype == PKV_INT8 ? dim : 32; }
inline double largest_in_scales(pkv_dtype dtype) { return dtype == PKV_INT8 ? 127 : 7; }

// Rows as doubles, [row][head][dim].
class Doubles {
 public:
  explicit Doubles(const Rows& rows) : heads_(rows.heads()), dim_(rows.dim()) {
    numbers_.reserve(rows.rows() * heads_ * dim_);
    rows.each(
        [&](size_t r, uint32_t h, uint32_t d) { numbers_.push_back(double{rows.get(r, h, d)}); });
  }
  const double* row(uint64_t row, uint32_t head) const {
    return &numbers_[(row * heads_ + head) * dim_];
  }
  uint32_t dim() const { return dim_; }

 private:
  std::vector<double> numbers_;
  uint32_t heads_, dim_;
};

struct Query {
  size_t row;  // The row of q, out and mask.
  uint32_t head, kv_head;
  uint64_t position, start, length;   // `start` is the position at which the step begins.
  std::vector<uint64_t> places = {};  // the positions of the keys for slopes; none: as they are
  std::vector<double> bias = {};      // what a mask adds to the score of each position; none: 0
};

class ReferenceRow {
 public:
  ReferenceRow(const double* q, const Query& query, const Doubles& k, const Doubles& v,
               const Attention& attention)
      : attention_(attention), dim_(v.dim()) {
    for (uint64_t j = 0; j < query.length; j++)
      if (attention.sees(query.row, query.position, query.start, query.length, j))
        positions_.push_back(j);
    const double total = weigh(q, query, k);
    out.assign(dim_, 0);
    magnitude_.assign(dim_, 0);
    values_.assign(dim_, 0);
    for (size_t i = 0; i < positions_.size(); i++) {
      const double* row = v.row(positions_[i], query.kv_head);
      for (uint32_t d = 0; d < dim_; d++) {
        out[d] += p_[i] * row[d];
        magnitude_[d] += p_[i] * std::abs(row[d]);
        values_[d] += std::abs(row[d]);
      }
    }
    rounded_weights_.assign(dim_, 0);
    if (integers(attention.values)) add_rounding_of_weights(query, v);
    lse = std::log(total) + max_;
    const double sums = 6 * std::sqrt(static_cast<double>(positions_.size()) + 8) * u;
    lse_tolerance = weight_error_ + sums + 3 * u * (std::abs(lse) + 1);
    relative_ = 2 * weight_error_ + 2 * sums + (attention.merged ? 2 * lse_tolerance + 8 * u : 0);
    if (attention.merged) lse_tolerance += 3 * u * (std::abs(lse) + 1);
  }

  double tolerance(uint32_t d, pkv_dtype dtype) const {
    // Half a step between subnormal numbers.
    const double smallest = dtype == PKV_F16 ? std::ldexp(1.0, -25) : std::ldexp(1.0, -133);
    return relative_ * magnitude_[d] + rounding_of_weights(dtype) * magnitude_[d] +
           rounded_weights_[d] + unit_roundoff(dtype) * std::abs(out[d]) + 0x1p-126 * values_[d] +
           smallest;
  }

  // The positions that the query sees, their weights after the softmax, and the largest error of a
  // weight that is computed from the score and the lse.
  const std::vector<uint64_t>& positions() const { return positions_; }
  const std::vector<double>& weights() const { return p_; }
  double weight_tolerance(double weight) const {
    return (weight_error_ + lse_tolerance + 8 * u) * weight + std::ldexp(1.0, -120);
  }

  std::vector<double> out;
  double lse, lse_tolerance;

 private:
  static constexpr double u = 0x1p-24;

  double rounding_of_weights(pkv_dtype dtype) const {
    if (dtype == PKV_F16) return amx() ? 0x1p-15 : 0;
    return dtype == PKV_BF16 && (amx() || multiplied_as_bf16(attention_.values)) ? 0x1p-8 : 0;
  }

  bool computed_by(pkv_isa isa) const {
    return attention_.isa == isa || attention_.isa == PKV_ISA_AUTO;
  }
  bool amx() const { return computed_by(PKV_ISA_AMX); }

  bool multiplied_as_bf16(pkv_dtype stored) const {
    const bool fp8 = stored == PKV_FP8_E4M3 || stored == PKV_FP8_E5M2;
    if (computed_by(PKV_ISA_AVX512_BF16) && fp8) return true;
    const bool pairs = computed_by(PKV_ISA_AVX512_BF16) || computed_by(PKV_ISA_NEON_BF16);
    return pairs && stored == PKV_BF16;
  }

  // The most tiles (of 16 tokens) whose weights have the same unit if they are rounded to integers.
  size_t tiles_of_unit() const {
    return computed_by(PKV_ISA_AVX2) || computed_by(PKV_ISA_AVX_VNNI) ||
                   computed_by(PKV_ISA_AVX512_VNNI) || computed_by(PKV_ISA_AVX512_BF16)
               ? 8
               : 2;
  }

  // Computes the scores and their weights p, and the sum of exp(score - max) with the sink logit.
  double weigh(const double* q, const Query& query, const Doubles& k) {
    const double scale = attention_.scale != 0 ? double{attention_.scale}
                                               : 1 / std::sqrt(static_cast<double>(k.dim()));
    const double cap = double{attention_.softcap},
                 slope = attention_.alibi_slopes.empty()
                             ? 0
                             : double{attention_.alibi_slopes[query.head]};
    double largest = 0, largest_query = 0, largest_key = 0, farthest = 0;
    for (uint32_t d = 0; d < k.dim(); d++)
      largest_query = std::max(largest_query, std::abs(q[d] * scale));
    for (const uint64_t j : positions_) {
      const double* row = k.row(j, query.kv_head);
      double score = 0, magnitude = 0, key = 0;
      for (uint32_t d = 0; d < k.dim(); d++) {
        score += q[d] * row[d];
        magnitude += std::abs(q[d] * row[d]);
        key += std::abs(row[d]);
      }
      score *= scale;
      largest = std::max(largest, magnitude * std::abs(scale));
      largest_key = std::max(largest_key, key);
      if (cap != 0) score = cap * std::tanh(score / cap);
      const uint64_t place = query.places.empty() ? j : query.places[j];
      const double distance = static_cast<double>(place) - static_cast<double>(query.position),
                   bias = query.bias.empty() ? 0 : query.bias[j];
      farthest = std::max(farthest, std::abs(slope * distance) + std::abs(bias));
      p_.push_back(score + slope * distance + bias);
      max_ = std::max(max_, p_.back());
    }
    const double sink =
        attention_.sink_logits.empty() ? -HUGE_VAL : double{attention_.sink_logits[query.head]};
    max_ = std::max(max_, sink);
    if (max_ == -HUGE_VAL) return 0;  // The query sees nothing.
    double total = std::exp(sink - max_);
    for (double& weight : p_) total += weight = std::exp(weight - max_);
    for (double& weight : p_) weight /= total;
    double score_error = (6 * std::sqrt(static_cast<double>(k.dim())) * u + 3 * u) * largest +
                         16 * u * cap + 2 * u * farthest;
    if (multiplied_as_bf16(attention_.keys)) score_error += std::ldexp(largest, -16);
    if (amx() && attention_.keys == PKV_F16) score_error += std::ldexp(largest, -15);
    if (integers(attention_.keys))
      score_error += 1.01 * std::ldexp(largest_query * largest_key, -15);
    const double scores =
        largest + farthest + (attention_.sink_logits.empty() ? 0 : std::abs(sink));
    weight_error_ = 2 * score_error + 6 * u * scores + 4 * u;
    return total;
  }

  void add_rounding_of_weights(const Query& query, const Doubles& v) {
    const uint32_t step = scaled_dims(attention_.values, dim_);
    const auto scale_of = [&](uint64_t j, uint32_t run) {
      double largest = 0;
      for (uint32_t d = run * step; d < std::min(dim_, (run + 1) * step); d++)
        largest = std::max(largest, std::abs(v.row(j, query.kv_head)[d]));
      return largest / largest_in_scales(attention_.values);
    };
    std::vector<double> largest;  // in each tile that the query sees
    std::vector<size_t> tile_of;  // [positions]
    for (size_t i = 0; i < positions_.size(); i++) {
      if (i == 0 || positions_[i] / 16 != positions_[i - 1] / 16) largest.push_back(0);
      tile_of.push_back(largest.size() - 1);
      for (uint32_t run = 0; run * step < dim_; run++)
        largest.back() = std::max(largest.back(), p_[i] * scale_of(positions_[i], run));
    }
    // Tiles that no query sees are left out, so those of one unit can lie anywhere.
    const auto largest_beside = [&](size_t tile) {
      const size_t first = tile - std::min(tile, tiles_of_unit()),
                   last = std::min(tile + tiles_of_unit(), largest.size() - 1);
      return *std::max_element(&largest[first], &largest[last] + 1);
    };
    for (size_t i = 0; i < positions_.size(); i++) {
      const double unit = 1.01 * std::ldexp(largest_beside(tile_of[i]), -15);
      for (uint32_t run = 0; run * step < dim_; run++)
        if (const double scale = scale_of(positions_[i], run); scale != 0)
          for (uint32_t d = run * step; d < std::min(dim_, (run + 1) * step); d++)
            rounded_weights_[d] += unit * std::abs(v.row(positions_[i], query.kv_head)[d]) / scale;
    }
  }

  const Attention& attention_;
  const uint32_t dim_;
  std::vector<uint64_t> positions_;
  std::vector<double> p_, magnitude_, values_, rounded_weights_;
  double max_ = -HUGE_VAL, weight_error_ = 0, relative_ = 0;
};

// Returns the larger error. NaN counts as larger than any number.
inline double worse(double a, double b) { return std::isnan(a) || a > b ? a : b; }

// Rows [first, first + count) of q and out belong to the last `count` of `length` positions.
// Returns the largest error as a fraction of its tolerance, which is at most 1 if all is well. lse
// has [rows][query_heads] numbers, as the library gave them.
inline double worst_error(const Rows& q, const Rows& out, size_t first, size_t count,
                          const KeysValues& all, uint64_t length, const Attention& attention,
                          const std::vector<float>& lse = {}) {
  double worst = 0;
  const uint32_t heads_per_kv_head = q.heads() / all.k.heads();
  const Doubles queries(q), k(all.k), v(all.v);
  for (size_t i = first; i < first + count; i++) {
    for (uint32_t head = 0; head < q.heads(); head++) {
      const Query query{
          i, head, head / heads_per_kv_head, length - count + (i - first), length - count, length};
      const ReferenceRow expected(queries.row(i, head), query, k, v, attention);
      for (uint32_t d = 0; d < out.dim(); d++)
        worst = worse(std::abs(double{out.get(i, head, d)} - expected.out[d]) /
                          expected.tolerance(d, out.dtype()),
                      worst);
      if (lse.empty()) continue;
      const double found = double{lse[i * q.heads() + head]};
      worst =
          worse(found == expected.lse ? 0 : std::abs(found - expected.lse) / expected.lse_tolerance,
                worst);
    }
  }
  return worst;
}

}  // namespace cache_test
