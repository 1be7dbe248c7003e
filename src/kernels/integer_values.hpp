// V of the integer dtypes, int8 and int4: a weight times the scale of its token is rounded to a
// 16-bit integer, and integers are multiplied and added in pairs of tokens.
#pragma once

#include "kernels/integer_keys.hpp"
#include "kernels/values.hpp"

namespace pkv::kernels {

// The largest integer that stands for a weight times a scale. The unit is chosen for each row and
// strip: at most 2^-16 of their largest product.
inline constexpr float weight_range = 32767.0f;

// The scales of V of the tiles of a strip: [tile][number of the scale in a row][vector of tokens].
template <class Isa, unsigned max_scales>
using TileScales = Floats<Isa>[tiles_per_strip][max_scales][vectors_per_tile<Isa>];

// A product x becomes the integer x * inverse, and sums of integers are multiplied by factor.
// factor is NaN if a product is not finite. Scales are not negative.
struct WeightUnit {
  float inverse, factor;
};

// Finds the unit of each row, in one loop over all rows, so that they do not wait for each other.
template <class Isa, unsigned rows, unsigned tiles, unsigned max_scales>
void find_units(const ScoreRow* weights, const TileScales<Isa, max_scales>& scales, unsigned count,
                float range, WeightUnit* units) {
  using F = Floats<Isa>;
  constexpr unsigned vectors = vectors_per_tile<Isa>;
  // The bits of nonnegative numbers have the same order as the numbers; NaN has the largest bits.
  Words<Isa> max_bits[rows];
  PKV_UNROLL
  for (Words<Isa>& bits : max_bits) bits = Words<Isa>(0u);
  for (unsigned g = 0; g < count; g++) {
    PKV_UNROLL
    for (unsigned i = 0; i < tiles; i++)
      for (unsigned n = 0; n < vectors; n++) {
        PKV_UNROLL
        for (unsigned r = 0; r < rows; r++) {
          const F w = F::load_aligned(weights[i * rows + r] + n * F::size) * scales[i][g][n];
          max_bits[r] = xsimd::max(max_bits[r], same_bits<Words<Isa>>(w));
        }
      }
  }
  PKV_UNROLL
  for (unsigned r = 0; r < rows; r++) {
    const F w = as_floats<Isa>(max_bits[r]);
    const float largest = Isa::max_of(w);
    units[r] = {range / largest, largest / range};
    if (largest < min_quantised) units[r] = {0.0f, 0.0f};
    if (!xsimd::all(w - w == F(0.0f))) [[unlikely]]
      units[r] = {0.0f, __builtin_nanf("")};
  }
}

// Weights times scales as integers of a unit, in the lower 16 bits of each lane.
template <class Isa>
Words<Isa> in_units(Floats<Isa> weights, Floats<Isa> scales, float inverse) {
  // The low bits of the sum of this number and x < 2^16 are x, rounded.
  const Floats<Isa> magic(0x1.8p23f);
  return same_bits<Words<Isa>>(Isa::fma(weights * scales, Floats<Isa>(inverse), magic));
}

using PairWords = uint32_t[tile_tokens / 2];  // 16-bit integers of neighbouring tokens

// Rounds weights times scales to 16-bit integers of each row's unit.
template <class Isa, unsigned rows, unsigned tiles, unsigned max_scales>
void quantise_weights(const ScoreRow* weights, const TileScales<Isa, max_scales>& scales,
                      unsigned count, PairWords (*to)[max_scales], WeightUnit* units) {
  constexpr unsigned lanes = Floats<Isa>::size;
  find_units<Isa, rows, tiles, max_scales>(weights, scales, count, weight_range, units);
  for (unsigned j = 0; j < tiles * rows; j++)
    for (unsigned g = 0; g < count; g++)
      for (unsigned n = 0; n < vectors_per_tile<Isa>; n++)
        Isa::narrow(reinterpret_cast<unsigned char*>(to[j][g]) + n * lanes * 2,
                    in_units<Isa>(Floats<Isa>::load_aligned(weights[j] + n * lanes),
                                  scales[j / rows][g][n], units[j % rows].inverse));
}

// Adds the integer sums of each row, times the row's factor, to a vector of dims of its output.
template <class Isa, unsigned rows>
void add_integers(const Ints<Isa> (&sum)[rows], const WeightUnit* units, float* out, uint32_t dim) {
  PKV_UNROLL
  for (unsigned r = 0; r < rows; r++) {
    float* const to = out + size_t{r} * dim;
    Isa::fma(xsimd::to_float(sum[r]), Floats<Isa>(units[r].factor), Floats<Isa>::load_unaligned(to))
        .store_unaligned(to);
  }
}

template <class Isa, pkv_dtype dtype>
struct IntegerValueTile {
  static constexpr unsigned max_tiles = 2;
  static constexpr unsigned max_scales = scales_per_row(dtype, max_dim);

  // Loads all scales of some tiles, and prefetches those of the next ones.
  template <unsigned tiles>
  static void load_scales(TilePointers at, TilePointers next, uint32_t dim,
                          TileScales<Isa, max_scales>& scales) {
    const unsigned count = scales_per_row(dtype, dim);
    const size_t begin = size_t{dim} * dim_bytes;
    for (unsigned i = 0; i < tiles; i++) {
      prefetch_lines<Isa>(next[i] + begin, count * scale_bytes(dtype) * tile_tokens);
      for (unsigned g = 0; g < count; g++)
        for (unsigned n = 0; n < vectors_per_tile<Isa>; n++)
          scales[i][g][n] =
              token_scales<Isa, dtype>(at[i] + begin + g * scale_bytes(dtype) * tile_tokens, n);
    }
  }

  template <unsigned rows, unsigned tiles>
  static void accumulate(TilePointers at, TilePointers next, const ScoreRow* weights, uint32_t dim,
                         float* out) {
    constexpr unsigned lanes = Floats<Isa>::size;
    TileScales<Isa, max_scales> scales;
    load_scales<tiles>(at, next, dim, scales);
    alignas(64) PairWords w[tiles * rows][max_scales];
    WeightUnit units[rows];
    quantise_weights<Isa, rows, tiles, max_scales>(weights, scales, scales_per_row(dtype, dim), w,
                                                   units);
    for (uint32_t d = 0; d < dim; d += lanes) {
      const unsigned g = dtype == PKV_INT8 ? 0 : d / int4_group_size;
      Ints<Isa> sum[rows];
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++) sum[r] = Ints<Isa>(0);
      PKV_UNROLL
      for (unsigned i = 0; i < tiles; i++) {
        prefetch_lines<Isa>(next[i] + size_t{d} * dim_bytes, lanes * dim_bytes);
        PKV_UNROLL
        for (unsigned word = 0; word < tile_tokens / p; word++) {
          const Words<Isa> words = load_words<Isa>(at[i] + (size_t{word} * dim + d) * 4);
          PKV_UNROLL
          for (unsigned e = 0; e < p / 2; e++) {
            const Words<Isa> v = signed_pair<Isa, dtype>(words, e);
            PKV_UNROLL
            for (unsigned r = 0; r < rows; r++)
              sum[r] = Isa::dot_pairs(sum[r], v, Words<Isa>(w[i * rows + r][g][p / 2 * word + e]));
          }
        }
      }
      add_integers<Isa, rows>(sum, units, out + d, dim);
    }
  }

  static void unpack(const unsigned char* tile, uint32_t dim, float* to, size_t token_stride,
                     size_t panel_stride) {
    const unsigned char* const scales = tile + size_t{dim} * dim_bytes;
    for (uint32_t d = 0; d < dim; d += Floats<Isa>::size) {
      float* const column = to + d / tile_tokens * panel_stride + d % tile_tokens;
      for (uint32_t t = 0; t < tile_tokens; t++) {
        const Words<Isa> words = load_words<Isa>(tile + (size_t{t / p} * dim + d) * 4);
        const Ints<Isa> x =
            signed_field<Isa, element_bits(dtype)>(words, packed_v_index(dtype, dim, t % p, 0));
        (xsimd::to_float(x) * Floats<Isa>(token_scale(scales, d, t)))
            .store_unaligned(column + t * token_stride);
      }
    }
  }

  // Returns the scale of dim d of token t; the tile's scales begin at `scales`.
  static float token_scale(const unsigned char* scales, uint32_t d, uint32_t t) {
    if constexpr (dtype == PKV_INT8) {
      float scale;
      __builtin_memcpy(&scale, scales + t * 4, 4);
      return scale;
    } else {
      uint16_t scale;
      __builtin_memcpy(&scale, scales + (d / int4_group_size * tile_tokens + t) * 2, 2);
      return bf16_to_f32(scale);
    }
  }

 private:
  static constexpr unsigned p = interleaved(dtype);
  static constexpr unsigned dim_bytes = tile_tokens * element_bits(dtype) / 8;  // of all tokens
};

template <class Isa>
struct ValueTile<Isa, PKV_INT8> : IntegerValueTile<Isa, PKV_INT8> {};
template <class Isa>
struct ValueTile<Isa, PKV_INT4> : IntegerValueTile<Isa, PKV_INT4> {};

}  // namespace pkv::kernels
