// Attention with the bf16 instructions of NEON. A few rows use the dot product of pairs (bfdot)
// with K in its layout. Many rows use products of 2 x 4 by 4 x 2 numbers (bfmmla); for these, 4
// dims of K or 4 tokens of V are first moved together.
#pragma once

#include "kernels/isa/neon.hpp"
#include "kernels/isa/whole_pairs.hpp"
#include "kernels/values.hpp"

namespace pkv::kernels {

// Combines columns of 4 words from two rows of pairs to columns of 4 numbers.
static inline void put_fours(unsigned char* to, uint32x4_t first, uint32x4_t second) {
  vst1q_u8(to, vreinterpretq_u8_u32(vzip1q_u32(first, second)));
  vst1q_u8(to + 16, vreinterpretq_u8_u32(vzip2q_u32(first, second)));
}

static inline uint32x4_t load_four_words(const unsigned char* from) {
  return vreinterpretq_u32_u8(vld1q_u8(from));
}

// The lower or the upper halves of two vectors.
static inline float32x4_t lower_halves(float32x4_t a, float32x4_t b) {
  return vreinterpretq_f32_f64(vzip1q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}
static inline float32x4_t upper_halves(float32x4_t a, float32x4_t b) {
  return vreinterpretq_f32_f64(vzip2q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}

// A matrix product like multiply_tile(), but of 8 columns of bf16. For each row, a has a word for
// each pair of numbers along the depth; b[n] points to 4 columns of 4 numbers each, which are 128
// bytes apart. Without `add` the result is multiplied by `factor`.
template <class Isa, unsigned rows, uint32_t a_stride, bool add>
void multiply_pair_rows(const uint32_t* a, TilePointers b, size_t pairs, float factor, float* c,
                        size_t c_stride) {
  // sum[r][j] has rows 2 r and 2 r + 1 of columns 2 j and 2 j + 1. A single row is used as both.
  constexpr unsigned both = (rows + 1) / 2;
  const auto second = [](unsigned r) { return rows == 1 ? 0 : 2 * r + 1; };
  float32x4_t sum[both][4];
  PKV_UNROLL
  for (unsigned r = 0; r < both; r++) {
    PKV_UNROLL
    for (unsigned n = 0; n < 2; n++) {
      float32x4_t x = vdupq_n_f32(0), y = x;
      if constexpr (add) {
        x = vld1q_f32(c + 2 * r * c_stride + n * 4);
        y = vld1q_f32(c + second(r) * c_stride + n * 4);
      }
      sum[r][2 * n] = lower_halves(x, y);
      sum[r][2 * n + 1] = upper_halves(x, y);
    }
  }
  const unsigned char *b0 = b[0], *b1 = b[1];
  for (size_t pair = 0; pair < pairs; pair += 2, a += 2, b0 += 128, b1 += 128) {
    const uint32x4_t column[4] = {load_four_words(b0), load_four_words(b0 + 16),
                                  load_four_words(b1), load_four_words(b1 + 16)};
    PKV_UNROLL
    for (unsigned r = 0; r < both; r++) {
      const uint32x4_t x = vcombine_u32(vld1_u32(a + size_t{2} * r * a_stride),
                                        vld1_u32(a + size_t{second(r)} * a_stride));
      PKV_UNROLL
      for (unsigned j = 0; j < 4; j++)
        sum[r][j] =
            vbfmmlaq_f32(sum[r][j], vreinterpretq_bf16_u32(x), vreinterpretq_bf16_u32(column[j]));
    }
  }
  PKV_UNROLL
  for (unsigned r = 0; r < both; r++) {
    PKV_UNROLL
    for (unsigned n = 0; n < 2; n++) {
      const float32x4_t x = lower_halves(sum[r][2 * n], sum[r][2 * n + 1]),
                        y = upper_halves(sum[r][2 * n], sum[r][2 * n + 1]);
      vst1q_f32(c + 2 * r * c_stride + n * 4, add ? x : vmulq_n_f32(x, factor));
      if (rows > 1) vst1q_f32(c + second(r) * c_stride + n * 4, add ? y : vmulq_n_f32(y, factor));
    }
  }
}

// SplitQueryKeyTile's products.
template <class Isa>
struct NeonPairScores {
  template <unsigned rows, bool with_low>
  static void scores(const void* q, uint32_t dim, const unsigned char* tile,
                     const unsigned char* next, ScoreRow* scores) {
    // There are registers for 16 vectors of sums.
    constexpr unsigned vectors = rows * (with_low ? 2 : 1) > 4 ? 2 : 4;
    for (unsigned n = 0; n < 4; n += vectors)
      scores_of_vectors<rows, with_low, vectors>(q, dim, tile + n * 16, next + n * 64, n, scores);
  }

 private:
  // Computes the scores of 4 * vectors tokens, from vector `first` of the tile on.
  template <unsigned rows, bool with_low, unsigned vectors>
  static void scores_of_vectors(const void* q, uint32_t dim, const unsigned char* tile,
                                const unsigned char* next, unsigned first, ScoreRow* scores) {
    const uint32_t pairs = dim / 2;
    const uint32_t* words[rows];
    float32x4_t high[rows][vectors] = {}, low[rows][vectors] = {};
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) words[r] = SplitQuery::row(q, r, dim).words();

    for (uint32_t i = 0; i < pairs; i += 4, tile += 256, next += 256) {
      prefetch_lines<Isa>(next, vectors * 64);
      bfloat16x8_t q_high[rows], q_low[rows];
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++) {
        q_high[r] = vreinterpretq_bf16_u32(vld1q_u32(words[r] + i));
        if constexpr (with_low) q_low[r] = vreinterpretq_bf16_u32(vld1q_u32(words[r] + pairs + i));
      }
      const auto add = [&]<int j>() {
        PKV_UNROLL
        for (unsigned n = 0; n < vectors; n++) {
          const bfloat16x8_t k = vreinterpretq_bf16_u32(load_four_words(tile + j * 64 + n * 16));
          PKV_UNROLL
          for (unsigned r = 0; r < rows; r++) {
            high[r][n] = vbfdotq_laneq_f32(high[r][n], k, q_high[r], j);
            if constexpr (with_low) low[r][n] = vbfdotq_laneq_f32(low[r][n], k, q_low[r], j);
          }
        }
      };
      add.template operator()<0>();
      add.template operator()<1>();
      add.template operator()<2>();
      add.template operator()<3>();
    }
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) {
      const float factor = SplitQuery::row(q, r, dim).factor;
      PKV_UNROLL
      for (unsigned n = 0; n < vectors; n++) {
        float32x4_t total = high[r][n];
        if constexpr (with_low) total = vaddq_f32(total, low[r][n]);
        vst1q_f32(scores[r] + (first + n) * 4, vmulq_n_f32(total, factor));
      }
    }
  }
};

template <class Isa>
concept MultipliesBf16 = requires { typename Isa::Dot; };

template <MultipliesBf16 Isa>
struct KeyTile<Isa, PKV_BF16> : SplitQueryKeyTile<Isa, NeonPairScores<Isa>> {};

template <MultipliesBf16 Isa>
struct KeyPairs<Isa, PKV_BF16> : WholeKeyPairs<Isa> {
  // A tile is [dim / 4][16 tokens][4].
  static constexpr size_t column_bytes = 8;
  static void copy(const unsigned char* tile, uint32_t dim, unsigned char* to) {
    for (uint32_t pair = 0; pair < dim / 2; pair += 2, tile += 128, to += 128)
      for (unsigned n = 0; n < 4; n++)
        put_fours(to + n * 32, load_four_words(tile + n * 16), load_four_words(tile + 64 + n * 16));
  }
  template <unsigned rows>
  static void multiply(unsigned, const uint32_t* q, const float* units, TilePointers b,
                       uint32_t dim, float* scores) {
    multiply_pair_rows<Isa, rows, pair_stride, false>(q, b, dim / 2, *units, scores, score_stride);
  }
};

template <MultipliesBf16 Isa>
struct ValuePairs<Isa, PKV_BF16> : Bf16ValuePairs<Isa> {
  // V is [16 dims][4 tokens at a time][16][4]. Tokens that are not present become 0.
  static constexpr size_t column_bytes = 8;
  static bool copy(const unsigned char* tile, uint32_t dim, TokenMask present,
                   uint32_t strip_tokens, unsigned char* to, float*) {
    if (present == 0) tile = Bf16ValuePairs<Isa>::no_tile;
    const uint16x8_t infinity = vdupq_n_u16(0x7F80);
    uint16x8_t infinite = vdupq_n_u16(0);
    for (uint32_t t = 0; t < tile_tokens; t += 4, tile += size_t{dim} * 8, to += 128) {
      for (uint32_t d = 0; d < dim; d += 4) {
        uint32x4_t row[2];
        PKV_UNROLL
        for (uint32_t i = 0; i < 2; i++) {
          const uint32_t there = present >> (t + 2 * i);
          const uint32_t mask =
              ((there & 1) != 0 ? 0xFFFFu : 0) | ((there & 2) != 0 ? 0xFFFF0000u : 0);
          row[i] = vandq_u32(load_four_words(tile + (size_t{i} * dim + d) * 4), vdupq_n_u32(mask));
          const uint16x8_t exponents = vandq_u16(vreinterpretq_u16_u32(row[i]), infinity);
          infinite = vorrq_u16(infinite, vceqq_u16(exponents, infinity));
        }
        put_fours(to + d / tile_tokens * size_t{strip_tokens} * 32 + d % tile_tokens * 8, row[0],
                  row[1]);
      }
    }
    return vmaxvq_u16(infinite) == 0;
  }

  static float absorb(float* scores, uint32_t n, uint32_t end, const float*, uint32_t dim,
                      RowState row) {
    absorb_row<Isa>(scores, n, end, dim, row);
    for (uint32_t t = 0; t < end; t += 8) {
      const bfloat16x8_t rounded =
          vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(vld1q_f32(scores + t)), vld1q_f32(scores + t + 4));
      vst1q_f32(scores + t / 2, vreinterpretq_f32_bf16(rounded));
    }
    return 1;
  }

  template <unsigned rows>
  static void multiply(unsigned, const float* weights, const float*, TilePointers b, const float*,
                       uint32_t n, float* out, uint32_t dim) {
    multiply_pair_rows<Isa, rows, score_stride, true>(reinterpret_cast<const uint32_t*>(weights), b,
                                                      n / 2, 1, out, dim);
  }
};

}  // namespace pkv::kernels
