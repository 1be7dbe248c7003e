// Attention with the bf16 dot product of AVX-512.
//
// The instruction is a template parameter, so that a test can run all of this on CPUs that lack it.
#pragma once

#include "kernels/instruction_sets.h"
#include "kernels/isa/avx512.hpp"
#include "kernels/isa/bf16_parts.hpp"
#include "kernels/isa/byte_look_up.hpp"
#include "kernels/isa/whole_pairs.hpp"
#include "kernels/matmul.hpp"

namespace pkv::kernels {

template <class Base, class DotProduct>
struct Avx512DotBf16 : Base {
  using Dot = DotProduct;

  // Zen 4's own prefetcher is fast enough for 16 bits, and prefetches only disturb it. The numbers,
  // here and below, are measured (bench/NOTEBOOK.md).
  static int lead_in_order(pkv_dtype dtype, uint32_t rows, uint32_t dim) {
    if (rows > 1 || dim > most_dims_in_order || !is_float(dtype)) return -1;
    return dtype == PKV_F32 ? 2048 : 0;
  }

 protected:
  static constexpr uint32_t most_dims_in_order = 128;  // Their sums fill the registers.
  static bool is_float(pkv_dtype dtype) {
    return dtype == PKV_F32 || dtype == PKV_F16 || dtype == PKV_BF16;
  }
};

// Zen 5 reads memory twice as fast as Zen 4, and needs prefetches for that.
template <class Base>
struct ForZen5 : Base {
  static constexpr unsigned second_distance = 4096;
  static int lead_in_order(pkv_dtype dtype, uint32_t rows, uint32_t dim) {
    if (rows == 1) return dim > Base::most_dims_in_order ? -1 : Base::is_float(dtype) ? 4096 : 8192;
    return dtype == PKV_F16 || dtype == PKV_BF16 || is_fp8(dtype) ? 8192 : -1;
  }
};

// Pairs of bf16 and their products, for add_products().
template <class DotProduct>
struct Bf16Products {
  using Factor = uint32_t;
  using Columns = __m512i;
  using Sums = __m512;
  static Columns load(const unsigned char* from) { return _mm512_loadu_si512(from); }
  static Sums add(Sums sums, Factor x, Columns columns) {
    return DotProduct::dot(sums, columns, _mm512_set1_epi32(static_cast<int>(x)));
  }
};

// A matrix product like multiply_tile(), but of pairs of bf16. For each row, a has a word for each
// pair of numbers along the depth. Without `add` the result is multiplied by `factor`.
template <class DotProduct, unsigned rows, unsigned vectors, uint32_t a_stride, bool add>
void multiply_pairs(const uint32_t* a, TilePointers b, size_t pairs, float factor, float* c,
                    size_t c_stride) {
  __m512 sum[rows][vectors];
  PKV_UNROLL
  for (unsigned r = 0; r < rows; r++) {
    PKV_UNROLL
    for (unsigned n = 0; n < vectors; n++)
      sum[r][n] = add ? _mm512_loadu_ps(c + r * c_stride + n * tile_tokens) : _mm512_setzero_ps();
  }
  add_products<Bf16Products<DotProduct>, rows, vectors, a_stride, 1>(a, b, pairs, sum);
  PKV_UNROLL
  for (unsigned r = 0; r < rows; r++) {
    PKV_UNROLL
    for (unsigned n = 0; n < vectors; n++)
      _mm512_storeu_ps(c + r * c_stride + n * tile_tokens,
                       add ? sum[r][n] : _mm512_mul_ps(sum[r][n], _mm512_set1_ps(factor)));
  }
}

// The same if the number of vectors, 1 or 2, is not a constant.
template <class DotProduct, unsigned rows, uint32_t a_stride, bool add>
void multiply_pair_rows(unsigned vectors, const uint32_t* a, TilePointers b, size_t pairs,
                        float factor, float* c, size_t c_stride) {
  if (vectors == 1)
    multiply_pairs<DotProduct, rows, 1, a_stride, add>(a, b, pairs, factor, c, c_stride);
  else
    multiply_pairs<DotProduct, rows, 2, a_stride, add>(a, b, pairs, factor, c, c_stride);
}

// Loads 4 dims of K of 16 tokens.
template <class Isa, pkv_dtype dtype>
void load_dim_pairs(const unsigned char* from, __m512i (&pairs)[2]) {
  if constexpr (dtype == PKV_BF16) {
    pairs[0] = _mm512_loadu_si512(from);
    pairs[1] = _mm512_loadu_si512(from + 64);
  } else {
    load_key_pairs<Isa, dtype>(from, pairs);
  }
}

// SplitQueryKeyTile's products.
template <class Isa, pkv_dtype dtype>
struct Avx512PairScores {
  using DotProduct = typename Isa::Dot;

  template <unsigned rows, bool with_low>
  static void scores(const void* q, uint32_t dim, const unsigned char* tile,
                     const unsigned char* next, ScoreRow* scores) {
    const size_t stride = SplitQuery::bytes(dim) / 4;
    const uint32_t pairs = dim / 2;
    constexpr unsigned bytes = 4 * tile_tokens * Elements<Isa, dtype>::bytes;
    const uint32_t* const words = SplitQuery::row(q, 0, dim).words();
    __m512 high[2][rows], low[rows];  // two sums hide the latency of the additions
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) high[0][r] = high[1][r] = low[r] = _mm512_setzero_ps();

    for (uint32_t i = 0; i < pairs; i += 2, tile += bytes, next += bytes) {
      prefetch_lines<Isa, rows>(next, bytes);
      __m512i k[2];
      load_dim_pairs<Isa, dtype>(tile, k);
      PKV_UNROLL
      for (uint32_t j = 0; j < 2; j++) {
        PKV_UNROLL
        for (unsigned r = 0; r < rows; r++) {
          const uint32_t* const row = words + r * stride + i + j;
          high[j][r] =
              DotProduct::dot(high[j][r], k[j], _mm512_set1_epi32(static_cast<int>(row[0])));
          if constexpr (with_low)
            low[r] = DotProduct::dot(low[r], k[j], _mm512_set1_epi32(static_cast<int>(row[pairs])));
        }
      }
    }
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) {
      __m512 total = _mm512_add_ps(high[0][r], high[1][r]);
      if constexpr (with_low) total = _mm512_add_ps(total, low[r]);
      _mm512_store_ps(scores[r],
                      _mm512_mul_ps(total, _mm512_set1_ps(SplitQuery::row(q, r, dim).factor)));
    }
  }
};

template <class Isa>
concept DotsPairs = requires { typename Isa::Dot; };

template <DotsPairs Isa, pkv_dtype dtype>
using PairKeyTile = SplitQueryKeyTile<Isa, Avx512PairScores<Isa, dtype>, dtype>;

template <DotsPairs Isa>
struct KeyTile<Isa, PKV_BF16> : PairKeyTile<Isa, PKV_BF16> {};

template <DotsPairs Isa>
struct KeyPairs<Isa, PKV_BF16> : WholeKeyPairs<Isa> {
  // A tile of K is multiplied in its layout: a word for each column.
  static constexpr size_t column_bytes = 4;
  static constexpr void (*copy)(const unsigned char*, uint32_t, unsigned char*) = nullptr;
  template <unsigned rows>
  static void multiply(unsigned vectors, const uint32_t* q, const float* units, TilePointers b,
                       uint32_t dim, float* scores) {
    multiply_pair_rows<typename Isa::Dot, rows, pair_stride, false>(vectors, q, b, dim / 2, *units,
                                                                    scores, score_stride);
  }
};

template <DotsPairs Isa>
struct KeyTile<Isa, PKV_FP8_E4M3> : PairKeyTile<Isa, PKV_FP8_E4M3> {};
template <DotsPairs Isa>
struct KeyTile<Isa, PKV_FP8_E5M2> : PairKeyTile<Isa, PKV_FP8_E5M2> {};

// Loads some vectors of dims of V of two tokens; the first is even.
template <class Isa, pkv_dtype dtype, unsigned vectors>
void load_token_pairs(const unsigned char* tile, uint32_t dim, uint32_t t, uint32_t d,
                      __m512i (&pairs)[vectors]) {
  if constexpr (dtype == PKV_BF16) {
    PKV_UNROLL
    for (unsigned n = 0; n < vectors; n++)
      pairs[n] = _mm512_loadu_si512(tile + (size_t{t} / 2 * dim + d + n * 16) * 4);
  } else {
    const unsigned char* const at = tile + size_t{t} * dim + d;
    load_value_pairs<Isa, dtype>(at, at + dim, pairs);
  }
}

// V is multiplied by weights that are rounded to bf16, two tokens at a time.
template <DotsPairs Isa, pkv_dtype dtype>
struct PairValueTile : FloatValueTile<Isa, dtype> {
  // The same as accumulate() for results that become bf16.
  template <unsigned rows, unsigned tiles>
  static void accumulate_rounded(TilePointers at, TilePointers next, const ScoreRow* weights,
                                 uint32_t dim, float* out) {
    static_assert(tiles == 1);
    alignas(64) ScoreRow rounded[rows];
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) round(weights[r], rounded[r]);
    Base::template add<Pair, rows, Base::template most_vectors<rows>>(*at, *next, rounded, dim, 0,
                                                                      out);
  }

  // Rounds the weights of a tile to pairs of bf16.
  static void round(const float* weights, float* to) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), Isa::Dot::round(_mm512_loadu_ps(weights)));
  }

 private:
  using Base = FloatValueTile<Isa, dtype>;

  template <unsigned vectors>
  struct Pair {
    __m512i words[vectors];

    Pair(const unsigned char* tile, uint32_t dim, uint32_t t, uint32_t d) {
      load_token_pairs<Isa, dtype>(tile, dim, t, d, words);
    }
    void add(const ScoreRow& weights, uint32_t t, Floats<Isa> (&sum)[vectors]) const {
      const __m512i w = _mm512_castps_si512(_mm512_set1_ps(weights[t / 2]));
      PKV_UNROLL
      for (unsigned n = 0; n < vectors; n++)
        sum[n] = Floats<Isa>(Isa::Dot::dot(sum[n], words[n], w));
    }
  };
};

template <DotsPairs Isa>
struct ValueTile<Isa, PKV_BF16> : PairValueTile<Isa, PKV_BF16> {};

template <DotsPairs Isa>
struct ValuePairs<Isa, PKV_BF16> : Bf16ValuePairs<Isa> {
  static constexpr size_t column_bytes = 4;
  static bool copy(const unsigned char* tile, uint32_t dim, TokenMask present,
                   uint32_t strip_tokens, unsigned char* to, float*) {
    return copy_bf16_panels(present != 0 ? tile : ValuePairs::no_tile, dim, present, to,
                            size_t{strip_tokens} * 32);
  }

  static float absorb(float* scores, uint32_t n, uint32_t end, const float*, uint32_t dim,
                      RowState row) {
    if (n != 0)
      absorb_row<Isa>(scores, n, dim, row, [=](Floats<Isa> weight, uint32_t i) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(scores + i / 2), Isa::Dot::round(weight));
      });
    for (uint32_t i = n / 2; i < end / 2; i++) scores[i] = 0;
    return 1;
  }

  template <unsigned rows>
  static void multiply(unsigned vectors, const float* weights, const float*, TilePointers b,
                       const float*, uint32_t n, float* out, uint32_t dim) {
    multiply_pair_rows<typename Isa::Dot, rows, score_stride, true>(
        vectors, reinterpret_cast<const uint32_t*>(weights), b, n / 2, 1, out, dim);
  }
};

template <DotsPairs Isa>
struct ValueTile<Isa, PKV_FP8_E4M3> : PairValueTile<Isa, PKV_FP8_E4M3> {};
template <DotsPairs Isa>
struct ValueTile<Isa, PKV_FP8_E5M2> : PairValueTile<Isa, PKV_FP8_E5M2> {};

}  // namespace pkv::kernels
