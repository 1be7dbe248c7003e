// V of a packed tile: out[row] += sum of weight[row][token] * V[token] over its 16 tokens. V is
// loaded once for all rows of a register tile. All 16 tokens are there; a tile of which a row sees
// a part goes through add_seen().
//
//   ValueTile<Isa, dtype>
//     most_tiles                                   that are worth to be taken in one step
//     linear_dims                                  up to so many, one row is multiplied in the
//     order of memory, faster than that gives V accumulate<rows, tiles>(at, next, weights, dim,
//     out)
//                                                  weights of row r and tile i at i * rows + r;
//                                                  rows of out are dim apart
//     unpack(tile, dim, to, token_stride, panel_stride)    dims [16 p, 16 p + 16) of token t at to
//     + p * panel_stride + t * token_stride
#pragma once

#include "kernels/keys.hpp"

namespace pkv::kernels {

// V of 16 tokens.
template <class Isa, pkv_dtype dtype>
struct ValueRows {
  static constexpr bool in_pairs =
      dtype == PKV_BF16 || through_f16<Isa, dtype>;  // two tokens come at once

  const unsigned char* tile;
  uint32_t dim;

  // A vector of dims from d on, of token t.
  Floats<Isa> load(uint32_t t, uint32_t d) const {
    return Elements<Isa, dtype>::load(tile + (size_t{t} * dim + d) * Elements<Isa, dtype>::bytes);
  }

  // The same of tokens t and t + 1 (t even).
  void load_two(uint32_t t, uint32_t d, Floats<Isa>* first, Floats<Isa>* second) const {
    if constexpr (dtype == PKV_BF16) {
      const Words<Isa> words = load_words<Isa>(tile + (size_t{t} / 2 * dim + d) * 4);
      *first = lower_bf16<Isa>(words);
      *second = upper_bf16<Isa>(words);
    } else if constexpr (through_f16<Isa, dtype>) {
      const unsigned char* const at = tile + size_t{t} * dim + d;
      load_two_fp8<Isa, dtype>(at, at + dim, first, second);
    } else {
      *first = load(t, d);
      *second = load(t + 1, d);
    }
  }
};

template <class Isa, pkv_dtype dtype>
struct FloatValueTile {
  static constexpr unsigned max_tiles = 1;
  static constexpr unsigned linear_dims =
      is_fp8(dtype) ? 0 : 8 * Floats<Isa>::size;  // there are registers for so many

  template <unsigned rows, unsigned tiles>
  static void accumulate(TilePointers at, TilePointers next, const ScoreRow* weights, uint32_t dim,
                         float* out) {
    static_assert(tiles == 1);
    alignas(64) float scaled[rows][tile_tokens];
    if constexpr (unit<Isa, dtype> != 1) weights = times_unit<rows>(weights, scaled);
    const ValueRows<Isa, dtype> v{*at, dim};
    const unsigned char* const lines = *next;
    uint32_t d = 0;
    if (rows == 1 && dim <= linear_dims) {
      d = add_while_left<1, 8>(v, lines, weights, d, out);
      d = add_while_left<1, 4>(v, lines, weights, d, out);
    }
    add_while_left<rows, vectors_per_tile<Isa> == 1 ? 1 : 2>(v, lines, weights, d, out);
  }

  static void unpack(const unsigned char* tile, uint32_t dim, float* to, size_t token_stride,
                     size_t panel_stride) {
    const ValueRows<Isa, dtype> v{tile, dim};
    const Floats<Isa> scale(unit<Isa, dtype>);
    for (uint32_t d = 0; d < dim; d += tile_tokens, to += panel_stride) {
      for (uint32_t t = 0; t < tile_tokens; t += 2) {
        for (unsigned n = 0; n < tile_tokens; n += Floats<Isa>::size) {
          Floats<Isa> first, second;
          v.load_two(t, d + n, &first, &second);
          if constexpr (unit<Isa, dtype> != 1) first *= scale, second *= scale;
          first.store_unaligned(to + t * token_stride + n);
          second.store_unaligned(to + (t + 1) * token_stride + n);
        }
      }
    }
  }

 private:
  // Some vectors of dims at once, so that loads of weights are shared.
  template <unsigned rows, unsigned vectors>
  static uint32_t add_while_left(const ValueRows<Isa, dtype>& v, const unsigned char* next,
                                 const ScoreRow* weights, uint32_t d, float* out) {
    constexpr unsigned dims = vectors * Floats<Isa>::size;
    for (; d + dims <= v.dim; d += dims) add_dims<rows, vectors>(v, next, weights, d, out);
    return d;
  }

  template <unsigned rows, unsigned vectors>
  [[gnu::always_inline]] static inline void add_dims(const ValueRows<Isa, dtype>& v,
                                                     const unsigned char* next,
                                                     const ScoreRow* weights, uint32_t d,
                                                     float* out) {
    constexpr unsigned lanes = Floats<Isa>::size,
                       line_bytes = vectors * lanes * Elements<Isa, dtype>::bytes;
    // With one vector per tile the adders' latency is hidden by a second sum per row. What a row
    // gets does not depend on `vectors`.
    constexpr unsigned chains = vectors_per_tile<Isa> == 1 ? 2 : 1;
    Floats<Isa> sum[chains][rows][vectors];
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) {
      PKV_UNROLL
      for (unsigned n = 0; n < vectors; n++) {
        sum[chains - 1][r][n] = Floats<Isa>(0.0f);
        sum[0][r][n] = Floats<Isa>::load_unaligned(out + size_t{r} * v.dim + d + n * lanes);
      }
    }
    const auto add = [&](unsigned chain, uint32_t t, unsigned n, Floats<Isa> x) {
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++)
        sum[chain][r][n] = Isa::fma(Floats<Isa>(weights[r][t]), x, sum[chain][r][n]);
    };
    const unsigned char* const lines = next + size_t{d} * tile_tokens * Elements<Isa, dtype>::bytes;
    PKV_UNROLL
    for (uint32_t t = 0; t < tile_tokens; t += 2) {
      // A few lines at a time: they are fetched while these are multiplied.
      prefetch_lines<Isa>(lines + t * line_bytes, 2 * line_bytes);
      if constexpr (ValueRows<Isa, dtype>::in_pairs) {
        PKV_UNROLL
        for (unsigned n = 0; n < vectors; n++) {
          Floats<Isa> first, second;
          v.load_two(t, d + n * lanes, &first, &second);
          add(0, t, n, first);
          add(chains - 1, t + 1, n, second);
        }
      } else {
        PKV_UNROLL
        for (unsigned n = 0; n < vectors; n++) add(0, t, n, v.load(t, d + n * lanes));
        PKV_UNROLL
        for (unsigned n = 0; n < vectors; n++)
          add(chains - 1, t + 1, n, v.load(t + 1, d + n * lanes));
      }
    }
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) {
      PKV_UNROLL
      for (unsigned n = 0; n < vectors; n++) {
        const Floats<Isa> total = chains == 2 ? sum[0][r][n] + sum[chains - 1][r][n] : sum[0][r][n];
        total.store_unaligned(out + size_t{r} * v.dim + d + n * lanes);
      }
    }
  }

  template <unsigned rows>
  static const ScoreRow* times_unit(const ScoreRow* weights, ScoreRow* to) {
    for (unsigned r = 0; r < rows; r++)
      for (unsigned n = 0; n < tile_tokens; n += Floats<Isa>::size)
        (Floats<Isa>::load_aligned(weights[r] + n) * Floats<Isa>(unit<Isa, dtype>))
            .store_aligned(to[r] + n);
    return to;
  }
};

template <class Isa, pkv_dtype dtype>
struct ValueTile : FloatValueTile<Isa, dtype> {};

// What weights times the scales of V are rounded to: 2^-16 of the largest of a row, in the tiles
// that are taken in one step.
inline constexpr float weight_range = 32767.0f;

// The scales of V of some tiles, each of a group of dims.
template <class Isa, unsigned max_groups>
using TileScales = Floats<Isa>[tiles_per_step][max_groups][vectors_per_tile<Isa>];

// Weights times scales as integers up to `range`: what they are multiplied with, and the inverse.
// factor is NaN where a product is not finite. Scales are not negative.
struct WeightUnit {
  float inverse, factor;
};

// The unit of each row: they do not wait for each other.
template <class Isa, unsigned rows, unsigned tiles, unsigned max_groups>
void find_units(const ScoreRow* weights, const TileScales<Isa, max_groups>& scales, unsigned groups,
                float range, WeightUnit* units) {
  using F = Floats<Isa>;
  constexpr unsigned vectors = vectors_per_tile<Isa>;
  // Of numbers that are not negative the larger has the larger bits, and NaN the largest.
  Words<Isa> most[rows];
  PKV_UNROLL
  for (Words<Isa>& m : most) m = Words<Isa>(0u);
  for (unsigned g = 0; g < groups; g++) {
    PKV_UNROLL
    for (unsigned i = 0; i < tiles; i++)
      for (unsigned n = 0; n < vectors; n++) {
        PKV_UNROLL
        for (unsigned r = 0; r < rows; r++) {
          const F w = F::load_aligned(weights[i * rows + r] + n * F::size) * scales[i][g][n];
          most[r] = xsimd::max(most[r], xsimd::bitwise_cast<Words<Isa>>(w));
        }
      }
  }
  PKV_UNROLL
  for (unsigned r = 0; r < rows; r++) {
    const F w = as_floats<Isa>(most[r]);
    const float largest = Isa::max_of(w);
    units[r] = {range / largest, largest / range};
    if (largest < min_quantised) units[r] = {0.0f, 0.0f};
    if (!xsimd::all(w - w == F(0.0f))) [[unlikely]]
      units[r] = {0.0f, __builtin_nanf("")};
  }
}

// A product of weights and scales in a unit, rounded, in the lower 16 bits.
template <class Isa>
Words<Isa> in_units(Floats<Isa> weights, Floats<Isa> scales, float inverse) {
  const Floats<Isa> magic(
      0x1.8p23f);  // its sum with a number below 2^16 has that, rounded, in the low bits
  return xsimd::bitwise_cast<Words<Isa>>(Isa::fma(weights * scales, Floats<Isa>(inverse), magic));
}

using PairWords = uint32_t[tile_tokens / 2];  // 16-bit integers of neighbouring tokens

template <class Isa, unsigned rows, unsigned tiles, unsigned max_groups>
void quantise_weights(const ScoreRow* weights, const TileScales<Isa, max_groups>& scales,
                      unsigned groups, PairWords (*to)[max_groups], WeightUnit* units) {
  constexpr unsigned lanes = Floats<Isa>::size;
  find_units<Isa, rows, tiles, max_groups>(weights, scales, groups, weight_range, units);
  for (unsigned j = 0; j < tiles * rows; j++)
    for (unsigned g = 0; g < groups; g++)
      for (unsigned n = 0; n < vectors_per_tile<Isa>; n++)
        Isa::narrow(reinterpret_cast<unsigned char*>(to[j][g]) + n * lanes * 2,
                    in_units<Isa>(Floats<Isa>::load_aligned(weights[j] + n * lanes),
                                  scales[j / rows][g][n], units[j % rows].inverse));
}

// Sums of products with weights in units, onto a vector of dims of each row.
template <class Isa, unsigned rows>
void add_integers(const Ints<Isa> (&sum)[rows], const WeightUnit* units, float* out, uint32_t dim) {
  PKV_UNROLL
  for (unsigned r = 0; r < rows; r++) {
    float* const to = out + size_t{r} * dim;
    Isa::fma(xsimd::to_float(sum[r]), Floats<Isa>(units[r].factor), Floats<Isa>::load_unaligned(to))
        .store_unaligned(to);
  }
}

template <class Isa>
struct GenericInt8ValueTile {
  static constexpr unsigned max_tiles = 2, linear_dims = 0;

  template <unsigned rows, unsigned tiles>
  static void accumulate(TilePointers at, TilePointers next, const ScoreRow* weights, uint32_t dim,
                         float* out) {
    constexpr unsigned lanes = Floats<Isa>::size;
    TileScales<Isa, 1> scales;
    for (unsigned i = 0; i < tiles; i++)
      for (unsigned n = 0; n < vectors_per_tile<Isa>; n++)
        scales[i][0][n] =
            as_floats<Isa>(load_words<Isa>(at[i] + size_t{dim} * tile_tokens + n * lanes * 4));
    alignas(64) PairWords w[tiles * rows][1];
    WeightUnit units[rows];
    quantise_weights<Isa, rows, tiles, 1>(weights, scales, 1, w, units);
    for (uint32_t d = 0; d < dim; d += lanes) {
      Ints<Isa> sum[rows];
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++) sum[r] = Ints<Isa>(0);
      PKV_UNROLL
      for (unsigned i = 0; i < tiles; i++) {
        prefetch_lines<Isa>(next[i] + size_t{d} * tile_tokens, lanes * tile_tokens);
        PKV_UNROLL
        for (unsigned quad = 0; quad < 4; quad++) {
          const Words<Isa> words = load_words<Isa>(at[i] + (size_t{quad} * dim + d) * 4);
          PKV_UNROLL
          for (unsigned e = 0; e < 2; e++) {
            const Words<Isa> v = signed_pair<Isa, PKV_INT8>(words, e);
            PKV_UNROLL
            for (unsigned r = 0; r < rows; r++)
              sum[r] = Isa::dot_pairs(sum[r], v, Words<Isa>(w[i * rows + r][0][2 * quad + e]));
          }
        }
      }
      add_integers<Isa, rows>(sum, units, out + d, dim);
    }
  }

  static void unpack(const unsigned char* tile, uint32_t dim, float* to, size_t token_stride,
                     size_t panel_stride) {
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
struct ValueTile<Isa, PKV_INT8> : GenericInt8ValueTile<Isa> {};

template <class Isa>
struct Int4ValueTile {
  static constexpr unsigned max_tiles = 2, linear_dims = 0;
  static constexpr unsigned max_groups = max_dim / int4_group_size;

  template <unsigned tiles>
  static void load_scales(TilePointers at, TilePointers next, uint32_t dim,
                          TileScales<Isa, max_groups>& scales) {
    const unsigned groups = scales_per_row(PKV_INT4, dim);
    const size_t begin = size_t{dim} * tile_tokens / 2;
    for (unsigned i = 0; i < tiles; i++) {
      prefetch_lines<Isa>(next[i] + begin, groups * 2 * tile_tokens);
      for (unsigned g = 0; g < groups; g++)
        for (unsigned n = 0; n < vectors_per_tile<Isa>; n++)
          scales[i][g][n] = bf16_scales<Isa>(at[i] + begin + g * 2 * tile_tokens, n);
    }
  }

  template <unsigned rows, unsigned tiles>
  static void accumulate(TilePointers at, TilePointers next, const ScoreRow* weights, uint32_t dim,
                         float* out) {
    constexpr unsigned lanes = Floats<Isa>::size;
    TileScales<Isa, max_groups> scales;
    load_scales<tiles>(at, next, dim, scales);
    alignas(64) PairWords w[tiles * rows][max_groups];
    WeightUnit units[rows];
    quantise_weights<Isa, rows, tiles, max_groups>(weights, scales, scales_per_row(PKV_INT4, dim),
                                                   w, units);
    for (uint32_t d = 0; d < dim; d += lanes) {
      const unsigned g = d / int4_group_size;
      Ints<Isa> sum[rows];
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++) sum[r] = Ints<Isa>(0);
      PKV_UNROLL
      for (unsigned i = 0; i < tiles; i++) {
        prefetch_lines<Isa>(next[i] + size_t{d} * tile_tokens / 2, lanes * tile_tokens / 2);
        PKV_UNROLL
        for (unsigned oct = 0; oct < 2; oct++) {
          const Words<Isa> words = load_words<Isa>(at[i] + (size_t{oct} * dim + d) * 4);
          PKV_UNROLL
          for (unsigned e = 0; e < 4; e++) {
            const Words<Isa> nibbles = signed_pair<Isa, PKV_INT4>(words, e);
            PKV_UNROLL
            for (unsigned r = 0; r < rows; r++)
              sum[r] = Isa::dot_pairs(sum[r], nibbles, Words<Isa>(w[i * rows + r][g][4 * oct + e]));
          }
        }
      }
      add_integers<Isa, rows>(sum, units, out + d, dim);
    }
  }

  static void unpack(const unsigned char* tile, uint32_t dim, float* to, size_t token_stride,
                     size_t panel_stride) {
    const unsigned char* const scales = tile + size_t{dim} * tile_tokens / 2;
    for (uint32_t d = 0; d < dim; d += Floats<Isa>::size) {
      float* const column = to + d / tile_tokens * panel_stride + d % tile_tokens;
      for (uint32_t t = 0; t < tile_tokens; t++) {
        uint16_t scale;
        __builtin_memcpy(&scale, scales + (d / int4_group_size * tile_tokens + t) * 2, 2);
        const Words<Isa> words = load_words<Isa>(tile + (size_t{t / 8} * dim + d) * 4);
        const Ints<Isa> x = signed_field<Isa, 4>(words, packed_v_index(PKV_INT4, dim, t % 8, 0));
        (xsimd::to_float(x) * Floats<Isa>(bf16_to_f32(scale)))
            .store_unaligned(column + t * token_stride);
      }
    }
  }
};

template <class Isa>
struct ValueTile<Isa, PKV_INT4> : Int4ValueTile<Isa> {};

// out += weight[t] * V[t] for the tokens of `seen` alone, V unpacked to v[16][dim]: what lies in
// other slots may be NaN.
template <class Isa>
void add_seen(const float* v, size_t token_stride, size_t panel_stride, uint32_t seen,
              const float* weights, uint32_t dim, float* out) {
  for (uint32_t t = 0; t < tile_tokens; t++) {
    if ((seen >> t & 1) == 0) continue;
    const Floats<Isa> weight(weights[t]);
    for (uint32_t d = 0; d < dim; d += Floats<Isa>::size) {
      const float* from = v + d / tile_tokens * panel_stride + t * token_stride + d % tile_tokens;
      Isa::fma(weight, Floats<Isa>::load_unaligned(from), Floats<Isa>::load_unaligned(out + d))
          .store_unaligned(out + d);
    }
  }
}

}  // namespace pkv::kernels
