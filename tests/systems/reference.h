// Textbook attention in double precision over keys and values as they are stored, and how far fp32 may be from it.
//
// Let u = 2^-24, D the key dim, n the positions seen, L(m) = 6 sqrt(m) u: what the roundings of a sum of m terms add up to, in any
// order, with a probability of failure far below one in a million (Higham and Mary 2019). Then
//   a score      s = scale q.k            is off by   e = (L(D) + 3 u) A,  A the largest scale * sum |q k|  over the positions
//                                         (+ 2^-16 A where q is split into two bf16 numbers: avx512_bf16 on stored bf16)
//   a weight     exp(s - max)             is off by   w = 2 e + 4 u A + 4 u,  relative
//   an output    sum(weight v) / sum(weight)          (2 w + 2 L(n + 8)) sum(p |v|), and one rounding to its dtype.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "rows.h"

namespace systems {

struct Attention {
  bool causal = true;
  uint32_t window = 0;  // 0: none
  float scale = 0;      // 0: 1 / sqrt(key_dim)
  bool splits_query = false;
};

// One query row against one session. position: of the query. all: keys and values of positions [0, length).
class ReferenceRow {
 public:
  ReferenceRow(const Rows& q, size_t row, uint32_t head, const KeysValues& all, uint64_t length, uint64_t position, uint32_t group,
               const Attention& attention)
      : kv_head_(head / group) {
    const uint64_t end = attention.causal ? position + 1 : length;
    const uint64_t begin = attention.window != 0 && position + 1 > attention.window ? position + 1 - attention.window : 0;
    const uint32_t dim = all.k.dim();
    const double scale = attention.scale != 0 ? double{attention.scale} : 1 / std::sqrt(static_cast<double>(dim));
    std::vector<double> weights;
    double largest = 0, max = -HUGE_VAL;
    for (uint64_t j = begin; j < end; j++) {
      double score = 0, magnitude = 0;
      for (uint32_t d = 0; d < dim; d++) {
        const double product = double{q.get(row, head, d)} * double{all.k.get(j, kv_head_, d)};
        score += product;
        magnitude += std::abs(product);
      }
      weights.push_back(score * scale);
      max = std::max(max, weights.back());
      largest = std::max(largest, magnitude * std::abs(scale));
    }
    double total = 0;
    for (double& weight : weights) total += weight = std::exp(weight - max);
    out.assign(all.v.dim(), 0);
    magnitude_.assign(all.v.dim(), 0);
    for (uint64_t j = begin; j < end; j++) {
      const double p = weights[j - begin] / total;
      for (uint32_t d = 0; d < all.v.dim(); d++) {
        const double v = double{all.v.get(j, kv_head_, d)};
        out[d] += p * v;
        magnitude_[d] += p * std::abs(v);
      }
    }
    const double u = unit_roundoff(PKV_F32);
    const auto sum = [u](double terms) { return 6 * std::sqrt(terms) * u; };
    const double score_error = (sum(dim) + 3 * u + (attention.splits_query ? std::ldexp(1.0, -16) : 0)) * largest;
    relative_ = 2 * (2 * score_error + 4 * u * largest + 4 * u) + 2 * sum(static_cast<double>(end - begin) + 8);
  }

  double tolerance(uint32_t d, pkv_dtype dtype) const {
    const double smallest = dtype == PKV_F16 ? std::ldexp(1.0, -25) : std::ldexp(1.0, -133);  // half a subnormal step
    return relative_ * magnitude_[d] + unit_roundoff(dtype) * std::abs(out[d]) + smallest;
  }

  std::vector<double> out;

 private:
  uint32_t kv_head_;
  std::vector<double> magnitude_;
  double relative_;
};

// Rows [first, first + count) of q and out belong to the last `count` of `length` positions. The largest error as a part of its
// tolerance: at most 1 if all is well.
inline double worst_error(const Rows& q, const Rows& out, size_t first, size_t count, const KeysValues& all, uint64_t length,
                          const Attention& attention) {
  double worst = 0;
  const uint32_t group = q.heads() / all.k.heads();
  for (size_t i = 0; i < count; i++) {
    for (uint32_t head = 0; head < q.heads(); head++) {
      const ReferenceRow expected(q, first + i, head, all, length, length - count + i, group, attention);
      for (uint32_t d = 0; d < out.dim(); d++) {
        const double error = std::abs(double{out.get(first + i, head, d)} - expected.out[d]) / expected.tolerance(d, out.dtype());
        worst = error <= worst ? worst : error;  // NaN counts as worst
        if (std::isnan(error)) return error;
      }
    }
  }
  return worst;
}

}  // namespace systems
