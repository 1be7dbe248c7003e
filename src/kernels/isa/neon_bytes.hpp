// int8 and int4 with NEON's products of bytes. A 16-bit number x is multiplied as two signed bytes,
// x * n = 256 * (high * n) + low * n, so nothing is rounded. Elements are taken 8 at a time: dims
// of K for 4 tokens, or tokens of V for 4 dims. int8 is multiplied in its layout. A shift and a
// mask turn the nibbles of int4 into bytes 16 n.
//
// The instructions are those of Isa::Bytes:
//
//   // a and b have 4 bytes each for each of 4 lanes. arrange() brings them into the order in which
//   // multiply() wants them.
//   static void arrange(int8x16_t& a, int8x16_t& b);
//   // factors has the high bytes of 8 numbers, those for a first, then their low bytes
//   static void multiply(int32x4_t (&sum)[2], int8x16_t a, int8x16_t b, int8x16_t factors);
//   static int32x4_t total(const int32x4_t (&sum)[2]);  // 256 high + low
#pragma once

#include "kernels/integer_values.hpp"

namespace pkv::kernels {

// The factor by which products of int8 and int4 elements are too large.
static inline constexpr float times_number(pkv_dtype dtype) { return dtype == PKV_INT4 ? 16 : 1; }

// The number of 32-bit words of a lane that have 8 of its elements.
static inline constexpr unsigned words_of_eight(pkv_dtype dtype) {
  return element_bits(dtype) * 8 / 32;
}

// Loads 8 elements of 4 lanes, whose words are `stride` bytes apart.
template <class Isa, pkv_dtype dtype>
[[gnu::always_inline]] inline void load_eight(const unsigned char* from, size_t stride,
                                              int8x16_t& a, int8x16_t& b) {
  const auto load = [](const unsigned char* at) { return vreinterpretq_s8_u8(vld1q_u8(at)); };
  if constexpr (dtype == PKV_INT8) {
    a = load(from);
    b = load(from + stride);
  } else {
    const int8x16_t nibbles = load(from);
    a = vshlq_n_s8(nibbles, 4);
    b = vandq_s8(nibbles, vdupq_n_s8(static_cast<int8_t>(0xF0)));
  }
  Isa::Bytes::arrange(a, b);
}

// Returns the high bytes of 8 numbers, then their low bytes. order has the number that each byte
// comes from, then the same plus 8.
template <class Isa>
int8x16_t signed_bytes_of(int16x8_t x, uint8x16_t order) {
  const int8x8_t high = vshrn_n_s16(vaddq_s16(x, vdupq_n_s16(128)), 8);
  return vqtbl1q_s8(vcombine_s8(high, vmovn_s16(x)), order);
}

// A query row is an IntegerQuery whose pairs are bytes, 16 for each 8 dims.
template <class Isa, pkv_dtype dtype>
struct NeonByteKeyTile : IntegerKeyTile<Isa, dtype> {
  static void prepare(const float* row, uint32_t dim, float, void* to) {
    static constexpr uint8_t int8_order[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                             int4_order[] = {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};
    const uint8x16_t order = vld1q_u8(dtype == PKV_INT8 ? int8_order : int4_order);
    alignas(64) int32_t q[max_dim];
    IntegerQuery* const query = static_cast<IntegerQuery*>(to);
    query->scale = query_integers<Isa>(row, dim, q) / times_number(dtype);
    int8_t* bytes = reinterpret_cast<int8_t*>(query->pairs());
    for (uint32_t d = 0; d < dim; d += 8, bytes += 16) {
      const int16x8_t x =
          vcombine_s16(vmovn_s32(vld1q_s32(q + d)), vmovn_s32(vld1q_s32(q + d + 4)));
      vst1q_s8(bytes, signed_bytes_of<Isa>(x, order));
    }
  }

  template <unsigned rows, unsigned tiles>
  static void scores(const void* q, uint32_t dim, TilePointers at, TilePointers next,
                     ScoreRow* scores) {
    // There are enough registers for the sums of 2 rows and a tile, or of 4 rows and half a tile.
    constexpr unsigned vectors = rows > 2 ? 2 : 4;
    for (unsigned i = 0; i < tiles; i++)
      for (unsigned n = 0; n < 4; n += vectors)
        scores_of_vectors<rows, vectors>(q, dim, at[i], next[i], n, scores + i * rows);
  }

 private:
  static constexpr unsigned step_bytes = words_of_eight(dtype) * 64;

  // Computes the scores of 4 * vectors tokens, from vector `first` of the tile on.
  template <unsigned rows, unsigned vectors>
  static void scores_of_vectors(const void* q, uint32_t dim, const unsigned char* tile,
                                const unsigned char* next, unsigned first, ScoreRow* scores) {
    const unsigned char* scale = tile + size_t{dim} * element_bits(dtype) * 2;
    const int8_t* bytes[rows];
    float factor[rows];
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) {
      const auto* const query = reinterpret_cast<const IntegerQuery*>(
          static_cast<const unsigned char*>(q) + r * IntegerQuery::bytes(dim));
      bytes[r] = reinterpret_cast<const int8_t*>(query->pairs());
      factor[r] = query->scale;
    }
    tile += first * 16;
    next += step_bytes / 4 * first;
    float32x4_t total[rows][vectors] = {};
    const uint32_t group_steps = (dtype == PKV_INT8 ? dim : int4_group_size) / 8;
    for (uint32_t step = 0; step < dim / 8; scale += scale_bytes(dtype) * tile_tokens) {
      const uint32_t left = dim / 8 - step, end = step + (left < group_steps ? left : group_steps);
      int32x4_t sum[rows][vectors][2] = {};
      for (; step < end; step++, tile += step_bytes, next += step_bytes) {
        prefetch_lines<Isa>(next, step_bytes / 4 * vectors);
        int8x16_t factors[rows];
        PKV_UNROLL
        for (unsigned r = 0; r < rows; r++) factors[r] = vld1q_s8(bytes[r] + step * 16);
        PKV_UNROLL
        for (unsigned n = 0; n < vectors; n++) {
          int8x16_t a, b;
          load_eight<Isa, dtype>(tile + n * 16, 64, a, b);
          PKV_UNROLL
          for (unsigned r = 0; r < rows; r++) Isa::Bytes::multiply(sum[r][n], a, b, factors[r]);
        }
      }
      PKV_UNROLL
      for (unsigned n = 0; n < vectors; n++) {
        const float32x4_t s = token_scales<Isa, dtype>(scale, first + n);
        PKV_UNROLL
        for (unsigned r = 0; r < rows; r++)
          total[r][n] = vfmaq_f32(total[r][n], vcvtq_f32_s32(Isa::Bytes::total(sum[r][n])), s);
      }
    }
    prefetch_lines<Isa>(next, 64);
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) {
      PKV_UNROLL
      for (unsigned n = 0; n < vectors; n++)
        vst1q_f32(scores[r] + (first + n) * 4, vmulq_n_f32(total[r][n], factor[r]));
    }
  }
};

template <class Isa, pkv_dtype dtype>
struct NeonByteValueTile : IntegerValueTile<Isa, dtype> {
  using Generic = IntegerValueTile<Isa, dtype>;
  static constexpr unsigned max_scales = Generic::max_scales;

  template <unsigned rows, unsigned tiles>
  static void accumulate(TilePointers at, TilePointers next, const ScoreRow* weights, uint32_t dim,
                         float* out) {
    TileScales<Isa, max_scales> scales;
    Generic::template load_scales<tiles>(at, next, dim, scales);
    Weights<rows, tiles> weight;
    weight.quantise(weights, scales, scales_per_row(dtype, dim));
    // There are enough registers for the sums of 2 rows and 16 dims, or of 4 rows and 8 dims.
    constexpr unsigned vectors = rows > 2 ? 2 : 4;
    for (uint32_t d = 0; d < dim; d += 4 * vectors)
      weight.template add<vectors>(at, next, d, dim, out);
  }

 private:
  static constexpr unsigned words = words_of_eight(dtype);

  // Integers up to weight_range fit into two signed bytes if they are negative.
  template <unsigned rows, unsigned tiles>
  struct Weights {
    int8x16_t w[tiles * rows][max_scales][tile_tokens / 8];
    WeightUnit units[rows];

    // Tokens are in the order of V in its words.
    void quantise(const ScoreRow* weights, const TileScales<Isa, max_scales>& scales,
                  unsigned groups) {
      static constexpr uint8_t int8_order[] = {0, 2,  1, 3,  4,  6,  5,  7,
                                               8, 10, 9, 11, 12, 14, 13, 15},
                               int4_order[] = {0, 4,  1, 5,  2,  6,  3,  7,
                                               8, 12, 9, 13, 10, 14, 11, 15};
      const uint8x16_t order = vld1q_u8(dtype == PKV_INT8 ? int8_order : int4_order);
      find_units<Isa, rows, tiles, max_scales>(weights, scales, groups, weight_range, units);
      for (unsigned j = 0; j < tiles * rows; j++)
        for (unsigned g = 0; g < groups; g++) {
          const auto integers = [&](unsigned n) {
            const Words<Isa> x = in_units<Isa>(Floats<Isa>::load_aligned(weights[j] + n * 4),
                                               scales[j / rows][g][n], units[j % rows].inverse);
            return vreinterpret_s16_u16(vmovn_u32(x));
          };
          PKV_UNROLL
          for (unsigned half = 0; half < 2; half++)
            w[j][g][half] = signed_bytes_of<Isa>(
                vnegq_s16(vcombine_s16(integers(2 * half), integers(2 * half + 1))), order);
        }
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++) units[r].factor *= -1 / times_number(dtype);
    }

    // Adds up `vectors` vectors of dims, from d on, which share their scales.
    template <unsigned vectors>
    [[gnu::always_inline]] void add(TilePointers at, TilePointers next, uint32_t d, uint32_t dim,
                                    float* out) const {
      const unsigned g = dtype == PKV_INT8 ? 0 : d / int4_group_size;
      int32x4_t sum[rows][vectors][2] = {};
      PKV_UNROLL
      for (unsigned i = 0; i < tiles; i++) {
        prefetch_lines<Isa>(next[i] + size_t{d} * element_bits(dtype) * 2,
                            vectors * words * 4 * tile_tokens / 2);
        PKV_UNROLL
        for (unsigned half = 0; half < 2; half++) {
          const unsigned char* const v = at[i] + (size_t{half} * words * dim + d) * 4;
          PKV_UNROLL
          for (unsigned n = 0; n < vectors; n++) {
            int8x16_t a, b;
            load_eight<Isa, dtype>(v + n * 16, size_t{dim} * 4, a, b);
            PKV_UNROLL
            for (unsigned r = 0; r < rows; r++)
              Isa::Bytes::multiply(sum[r][n], a, b, w[i * rows + r][g][half]);
          }
        }
      }
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++) {
        PKV_UNROLL
        for (unsigned n = 0; n < vectors; n++) {
          float* const to = out + size_t{r} * dim + d + n * 4;
          vst1q_f32(to, vfmaq_n_f32(vld1q_f32(to), vcvtq_f32_s32(Isa::Bytes::total(sum[r][n])),
                                    units[r].factor));
        }
      }
    }
  };
};

template <class Isa>
concept MultipliesBytes = requires { typename Isa::Bytes; };

template <MultipliesBytes Isa>
struct KeyTile<Isa, PKV_INT8> : NeonByteKeyTile<Isa, PKV_INT8> {};
template <MultipliesBytes Isa>
struct ValueTile<Isa, PKV_INT8> : NeonByteValueTile<Isa, PKV_INT8> {};
template <MultipliesBytes Isa>
struct KeyTile<Isa, PKV_INT4> : NeonByteKeyTile<Isa, PKV_INT4> {};
template <MultipliesBytes Isa>
struct ValueTile<Isa, PKV_INT4> : NeonByteValueTile<Isa, PKV_INT4> {};

}  // namespace pkv::kernels
