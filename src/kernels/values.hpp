// V of a packed tile: out[row] += sum of weight[row][token] * V[token] over its 16 tokens. V is loaded once for all rows of
// a register tile. All 16 tokens are there; a tile of which a row sees a part goes through add_seen().
//
//   ValueTile<Isa, dtype>
//     direct                                       false: the tile is unpacked to fp32 first
//     accumulate<rows>(tile, next, weights, dim, out)      rows of out are dim apart; `next` is prefetched
//     unpack(tile, dim, to, token_stride, panel_stride)    dims [16 p, 16 p + 16) of token t at to + p * panel_stride + t * token_stride
#pragma once

#include "kernels/keys.hpp"

namespace pkv {

// V of 16 tokens, a few vectors of dims wide.
template <class Isa, pkv_dtype dtype>
struct ValuePairs {
  const unsigned char* tile;
  uint32_t dim;

  // Two vectors of dims from d on, of tokens t and t + 1 (t even).
  void load(uint32_t t, uint32_t d, Floats<Isa>* first, Floats<Isa>* second) const {
    if constexpr (dtype == PKV_BF16) {
      const Words<Isa> words = load_words<Isa>(tile + (size_t{t} / 2 * dim + d) * 4);
      *first = lower_bf16<Isa>(words);
      *second = upper_bf16<Isa>(words);
    } else {
      using E = Elements<Isa, dtype>;
      *first = E::load(tile + (size_t{t} * dim + d) * E::bytes);
      *second = E::load(tile + (size_t{t + 1} * dim + d) * E::bytes);
    }
  }
};

template <class Isa, pkv_dtype dtype>
struct FloatValueTile {
  static constexpr bool direct = element_bits(dtype) > 8;

  template <unsigned rows>
  static void accumulate(const unsigned char* tile, const unsigned char* next, const ScoreRow* weights, uint32_t dim, float* out) {
    constexpr unsigned lanes = Floats<Isa>::size;
    // Vectors of dims at once: loads of weights are shared, and the adders' latency is hidden.
    constexpr unsigned vectors = vectors_per_tile<Isa> > 2 ? 2 : vectors_per_tile<Isa>;
    constexpr unsigned chains = vectors == 1 ? 2 : 1;
    constexpr unsigned step = lanes * vectors;
    const ValuePairs<Isa, dtype> v{tile, dim};
    for (uint32_t d = 0; d < dim; d += step) {
      Floats<Isa> sum[chains][rows][vectors];
#pragma GCC unroll 16
      for (unsigned r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (unsigned n = 0; n < vectors; n++) {
          sum[chains - 1][r][n] = Floats<Isa>(0.0f);
          sum[0][r][n] = Floats<Isa>::load_unaligned(out + size_t{r} * dim + d + n * lanes);
        }
      }
      prefetch_lines<Isa>(next + size_t{d} * tile_tokens * Elements<Isa, dtype>::bytes, step * tile_tokens * Elements<Isa, dtype>::bytes);
#pragma GCC unroll 8
      for (uint32_t t = 0; t < tile_tokens; t += 2) {
#pragma GCC unroll 4
        for (unsigned n = 0; n < vectors; n++) {
          Floats<Isa> first, second;
          v.load(t, d + n * lanes, &first, &second);
#pragma GCC unroll 16
          for (unsigned r = 0; r < rows; r++) {
            sum[0][r][n] = Isa::fma(Floats<Isa>(weights[r][t]), first, sum[0][r][n]);
            sum[chains - 1][r][n] = Isa::fma(Floats<Isa>(weights[r][t + 1]), second, sum[chains - 1][r][n]);
          }
        }
      }
#pragma GCC unroll 16
      for (unsigned r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (unsigned n = 0; n < vectors; n++) {
          const Floats<Isa> total = chains == 2 ? sum[0][r][n] + sum[chains - 1][r][n] : sum[0][r][n];
          total.store_unaligned(out + size_t{r} * dim + d + n * lanes);
        }
      }
    }
  }

  static void unpack(const unsigned char* tile, uint32_t dim, float* to, size_t token_stride, size_t panel_stride) {
    const ValuePairs<Isa, dtype> v{tile, dim};
    for (uint32_t d = 0; d < dim; d += tile_tokens, to += panel_stride) {
      for (uint32_t t = 0; t < tile_tokens; t += 2) {
        for (unsigned n = 0; n < tile_tokens; n += Floats<Isa>::size) {
          Floats<Isa> first, second;
          v.load(t, d + n, &first, &second);
          first.store_unaligned(to + t * token_stride + n);
          second.store_unaligned(to + (t + 1) * token_stride + n);
        }
      }
    }
  }
};

template <class Isa, pkv_dtype dtype>
struct ValueTile : FloatValueTile<Isa, dtype> {};

// Weights of a row times the scales of V, as 16-bit integers: rounded to 2^-15 of the largest.
using PairWords = uint32_t[tile_tokens / 2];  // neighbouring tokens

// groups: scales[g][vector] of 16 tokens. to[g] gets the integers; returns their factor, NaN where a weight is not finite.
template <class Isa>
float quantise_weights(const float* weights, const Floats<Isa> (*scales)[vectors_per_tile<Isa>], unsigned groups, PairWords* to) {
  using F = Floats<Isa>;
  constexpr unsigned vectors = vectors_per_tile<Isa>;
  F most(0.0f), total(0.0f);
  for (unsigned g = 0; g < groups; g++) {
    for (unsigned n = 0; n < vectors; n++) {
      const F w = F::load_aligned(weights + n * F::size) * scales[g][n];
      most = xsimd::max(most, w);
      total += w;
    }
  }
  const F poison = total - total;  // 0, or NaN
  if (!xsimd::all(poison == poison)) return __builtin_nanf("");
  const float largest = Isa::max_of(most);
  if (largest < least_quantised) {
    for (unsigned g = 0; g < groups; g++)
      for (uint32_t& pair : to[g]) pair = 0;
    return 0.0f;
  }
  const F inverse(integer_range / largest), magic(0x1.8p23f);  // its sum with a number below 2^16 has that, rounded, in the low bits
  for (unsigned g = 0; g < groups; g++) {
    for (unsigned n = 0; n < vectors; n++) {
      const F w = F::load_aligned(weights + n * F::size) * scales[g][n];
      Isa::narrow(reinterpret_cast<unsigned char*>(to[g]) + n * F::size * 2,
                  xsimd::bitwise_cast<Words<Isa>>(Isa::fma(w, inverse, magic)));
    }
  }
  return largest / integer_range;
}

template <class Isa>
struct ValueTile<Isa, PKV_INT8> {
  static constexpr bool direct = true;

  template <unsigned rows>
  static void accumulate(const unsigned char* tile, const unsigned char* next, const ScoreRow* weights, uint32_t dim, float* out) {
    constexpr unsigned lanes = Floats<Isa>::size, vectors = vectors_per_tile<Isa>;
    Floats<Isa> scales[1][vectors];
    for (unsigned n = 0; n < vectors; n++) scales[0][n] = as_floats<Isa>(load_words<Isa>(tile + size_t{dim} * tile_tokens + n * lanes * 4));
    alignas(64) PairWords w[rows][1];
    float factor[rows];
    for (unsigned r = 0; r < rows; r++) factor[r] = quantise_weights<Isa>(weights[r], scales, 1, w[r]);
    for (uint32_t d = 0; d < dim; d += lanes) {
      prefetch_lines<Isa>(next + size_t{d} * tile_tokens, lanes * tile_tokens);
      Ints<Isa> sum[rows];
#pragma GCC unroll 16
      for (unsigned r = 0; r < rows; r++) sum[r] = Ints<Isa>(0);
#pragma GCC unroll 4
      for (unsigned quad = 0; quad < 4; quad++) {
        const Words<Isa> words = load_words<Isa>(tile + (size_t{quad} * dim + d) * 4);
#pragma GCC unroll 2
        for (unsigned e = 0; e < 2; e++) {
          const Words<Isa> v = signed_pair<Isa, PKV_INT8>(words, e);
#pragma GCC unroll 16
          for (unsigned r = 0; r < rows; r++) sum[r] = Isa::dot_pairs(sum[r], v, Words<Isa>(w[r][0][2 * quad + e]));
        }
      }
#pragma GCC unroll 16
      for (unsigned r = 0; r < rows; r++) {
        float* const to = out + size_t{r} * dim + d;
        Isa::fma(xsimd::to_float(sum[r]), Floats<Isa>(factor[r]), Floats<Isa>::load_unaligned(to)).store_unaligned(to);
      }
    }
  }

  static void unpack(const unsigned char* tile, uint32_t dim, float* to, size_t token_stride, size_t panel_stride) {
    const unsigned char* const scales = tile + size_t{dim} * tile_tokens;
    for (uint32_t d = 0; d < dim; d += Floats<Isa>::size) {
      float* const column = to + d / tile_tokens * panel_stride + d % tile_tokens;
      for (uint32_t t = 0; t < tile_tokens; t++) {
        float scale;
        __builtin_memcpy(&scale, scales + t * 4, 4);
        const Words<Isa> words = load_words<Isa>(tile + (size_t{t / 4} * dim + d) * 4);
        const Ints<Isa> x = signed_field<Isa, 8>(words, packed_v_index(PKV_INT8, dim, t % 4, 0));
        (xsimd::to_float(x) * Floats<Isa>(scale)).store_unaligned(column + t * token_stride);
      }
    }
  }
};

template <class Isa>
struct ValueTile<Isa, PKV_INT4> {
  static constexpr bool direct = true;
  static constexpr unsigned most_groups = max_dim / int4_group;

  template <unsigned rows>
  static void accumulate(const unsigned char* tile, const unsigned char* next, const ScoreRow* weights, uint32_t dim, float* out) {
    constexpr unsigned lanes = Floats<Isa>::size, vectors = vectors_per_tile<Isa>;
    const unsigned groups = scales_per_row(PKV_INT4, dim);
    const unsigned char* const scale_bytes = tile + size_t{dim} * tile_tokens / 2;
    prefetch_lines<Isa>(next + size_t{dim} * tile_tokens / 2, groups * 2 * tile_tokens);
    Floats<Isa> scales[most_groups][vectors];
    for (unsigned g = 0; g < groups; g++)
      for (unsigned n = 0; n < vectors; n++) scales[g][n] = bf16_scales<Isa>(scale_bytes + g * 2 * tile_tokens, n);
    alignas(64) PairWords w[rows][most_groups];
    float factor[rows];
    for (unsigned r = 0; r < rows; r++) factor[r] = quantise_weights<Isa>(weights[r], scales, groups, w[r]);
    for (uint32_t d = 0; d < dim; d += lanes) {
      const unsigned g = d / int4_group;
      prefetch_lines<Isa>(next + size_t{d} * tile_tokens / 2, lanes * tile_tokens / 2);
      Ints<Isa> sum[rows];
#pragma GCC unroll 16
      for (unsigned r = 0; r < rows; r++) sum[r] = Ints<Isa>(0);
#pragma GCC unroll 2
      for (unsigned oct = 0; oct < 2; oct++) {
        const Words<Isa> words = load_words<Isa>(tile + (size_t{oct} * dim + d) * 4);
#pragma GCC unroll 4
        for (unsigned e = 0; e < 4; e++) {
          const Words<Isa> nibbles = signed_pair<Isa, PKV_INT4>(words, e);
#pragma GCC unroll 16
          for (unsigned r = 0; r < rows; r++) sum[r] = Isa::dot_pairs(sum[r], nibbles, Words<Isa>(w[r][g][4 * oct + e]));
        }
      }
#pragma GCC unroll 16
      for (unsigned r = 0; r < rows; r++) {
        float* const to = out + size_t{r} * dim + d;
        Isa::fma(xsimd::to_float(sum[r]), Floats<Isa>(factor[r]), Floats<Isa>::load_unaligned(to)).store_unaligned(to);
      }
    }
  }

  static void unpack(const unsigned char* tile, uint32_t dim, float* to, size_t token_stride, size_t panel_stride) {
    const unsigned char* const scales = tile + size_t{dim} * tile_tokens / 2;
    for (uint32_t d = 0; d < dim; d += Floats<Isa>::size) {
      float* const column = to + d / tile_tokens * panel_stride + d % tile_tokens;
      for (uint32_t t = 0; t < tile_tokens; t++) {
        uint16_t scale;
        __builtin_memcpy(&scale, scales + (d / int4_group * tile_tokens + t) * 2, 2);
        const Words<Isa> words = load_words<Isa>(tile + (size_t{t / 8} * dim + d) * 4);
        const Ints<Isa> x = signed_field<Isa, 4>(words, packed_v_index(PKV_INT4, dim, t % 8, 0));
        (xsimd::to_float(x) * Floats<Isa>(bf16_to_f32(scale))).store_unaligned(column + t * token_stride);
      }
    }
  }
};

// out += weight[t] * V[t] for the tokens of `seen` alone, V unpacked to v[16][dim]: what lies in other slots may be NaN.
template <class Isa>
void add_seen(const float* v, size_t token_stride, size_t panel_stride, uint32_t seen, const float* weights, uint32_t dim, float* out) {
  for (uint32_t t = 0; t < tile_tokens; t++) {
    if ((seen >> t & 1) == 0) continue;
    const Floats<Isa> weight(weights[t]);
    for (uint32_t d = 0; d < dim; d += Floats<Isa>::size) {
      const float* from = v + d / tile_tokens * panel_stride + t * token_stride + d % tile_tokens;
      Isa::fma(weight, Floats<Isa>::load_unaligned(from), Floats<Isa>::load_unaligned(out + d)).store_unaligned(out + d);
    }
  }
}

}  // namespace pkv
