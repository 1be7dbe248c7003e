// out[row] += sum of weight[row][token] * V[token] over the tokens of one tile that are seen: V is loaded once for all rows
// of the register tile. Unseen tokens are left out, not multiplied by 0: their slots may hold NaN.
#pragma once

#include "kernels/softmax.hpp"

namespace pkv {

// 16 dims of V for one token, or for a pair of them.
template <class Isa>
struct ValueVectors {
  Floats<Isa> vector[vectors_per_tile<Isa>];
};

// Sums for 16 dims of some rows.
template <class Isa, unsigned rows>
struct ValueSums {
  static constexpr unsigned vectors = vectors_per_tile<Isa>;
  // With one vector per row the adders' latency is hidden by a second sum per row.
  static constexpr unsigned chains = vectors == 1 ? 2 : 1;
  Floats<Isa> sum[chains][rows][vectors];

  ValueSums(const float* out, uint32_t stride) {
#pragma GCC unroll 16
    for (unsigned r = 0; r < rows; r++) {
#pragma GCC unroll 16
      for (unsigned n = 0; n < vectors; n++) {
        sum[chains - 1][r][n] = Floats<Isa>(0.0f);
        sum[0][r][n] = Floats<Isa>::load_unaligned(out + r * stride + n * Floats<Isa>::size);
      }
    }
  }

  void add(unsigned chain, const float (*weights)[tile_tokens], uint32_t token, const ValueVectors<Isa>& v) {
#pragma GCC unroll 16
    for (unsigned r = 0; r < rows; r++) {
      const Floats<Isa> weight(weights[r][token]);
#pragma GCC unroll 16
      for (unsigned n = 0; n < vectors; n++) sum[chain][r][n] = Isa::fma(weight, v.vector[n], sum[chain][r][n]);
    }
  }

  void store(float* out, uint32_t stride) const {
#pragma GCC unroll 16
    for (unsigned r = 0; r < rows; r++) {
#pragma GCC unroll 16
      for (unsigned n = 0; n < vectors; n++) {
        const Floats<Isa> total = chains == 2 ? sum[0][r][n] + sum[chains - 1][r][n] : sum[0][r][n];
        total.store_unaligned(out + r * stride + n * Floats<Isa>::size);
      }
    }
  }
};

// values.one(token, dim) and values.pair(token, dim, &first, &second) (token even) give 16 dims from `dim` on.
template <class Isa, unsigned rows, class Values>
void accumulate(const Values values, TokenRange seen, const float (*weights)[tile_tokens], float* out, uint32_t value_dim) {
  for (uint32_t d = 0; d < value_dim; d += tile_tokens) {
    values.prefetch(d);
    ValueSums<Isa, rows> sums(out + d, value_dim);
    uint32_t t = seen.begin;
    if (t % 2 != 0) {  // the pair's first token is not seen
      sums.add(0, weights, t, values.one(t, d));
      t++;
    }
    for (; t + 1 < seen.end; t += 2) {
      ValueVectors<Isa> first, second;
      values.pair(t, d, &first, &second);
      sums.add(0, weights, t, first);
      sums.add(sums.chains - 1, weights, t + 1, second);
    }
    if (t < seen.end) sums.add(0, weights, t, values.one(t, d));
    sums.store(out + d, value_dim);
  }
}

}  // namespace pkv
