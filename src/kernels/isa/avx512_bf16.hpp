// Attention with the bf16 dot product of AVX-512: bf16 K is multiplied as it lies, without a
// conversion.
//
// A query row is prepared once per task. If it is bf16 times the scale, it is multiplied as bf16,
// and its scores are multiplied by the scale. Otherwise it is split into two bf16 numbers per dim,
// with q = high + low within 2^-16. The instruction takes denormals for 0, and infinity times a
// denormal would become NaN, so a row that is not finite is multiplied as fp32.
//
// The instruction is a template parameter, so that a test can run all of this on processors that
// lack it.
#pragma once

#include "kernels/isa/avx512.hpp"
#include "kernels/isa/bf16_parts.hpp"
#include "kernels/values.hpp"

namespace pkv::kernels {

template <class Base, class DotProduct>
struct Avx512DotBf16 : Base {
  using Dot = DotProduct;
  static constexpr bool reads_in_order = true;
};

// A matrix product as multiply_tile() computes it, of pairs of bf16: a has a word with a pair for
// each row and pair of the depth, and vector n of pair k of b is at b[n] + k * 64. Without `add`
// the result is multiplied by `factor`.
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
  const unsigned char *b0 = b[0], *b1 = b[vectors - 1];
  for (size_t pair = 0; pair < pairs; pair++, a++, b0 += 64, b1 += 64) {
    __m512i column[vectors];
    column[0] = _mm512_loadu_si512(b0);
    if constexpr (vectors == 2) column[1] = _mm512_loadu_si512(b1);
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) {
      const __m512i x = _mm512_set1_epi32(static_cast<int>(a[r * a_stride]));
      PKV_UNROLL
      for (unsigned n = 0; n < vectors; n++) sum[r][n] = DotProduct::dot(sum[r][n], column[n], x);
    }
  }
  PKV_UNROLL
  for (unsigned r = 0; r < rows; r++) {
    PKV_UNROLL
    for (unsigned n = 0; n < vectors; n++)
      _mm512_storeu_ps(c + r * c_stride + n * tile_tokens,
                       add ? sum[r][n] : _mm512_mul_ps(sum[r][n], _mm512_set1_ps(factor)));
  }
}

// The same for a number of vectors, 1 or 2, that is not a constant.
template <class DotProduct, unsigned rows, uint32_t a_stride, bool add>
void multiply_pair_rows(unsigned vectors, const uint32_t* a, TilePointers b, size_t pairs,
                        float factor, float* c, size_t c_stride) {
  if (vectors == 1)
    multiply_pairs<DotProduct, rows, 1, a_stride, add>(a, b, pairs, factor, c, c_stride);
  else
    multiply_pairs<DotProduct, rows, 2, a_stride, add>(a, b, pairs, factor, c, c_stride);
}

// A prepared query row.
struct SplitQuery {
  float factor;  // its scores are multiplied by
  enum : uint32_t { split, whole, floats } kind;
  // Behind the struct lie dim / 2 words of pairs of the high numbers, which alone are the row if it
  // is whole, and as many of the low numbers; for `floats` the row in fp32.
  uint32_t* words() { return reinterpret_cast<uint32_t*>(this + 1); }
  const uint32_t* words() const { return reinterpret_cast<const uint32_t*>(this + 1); }
};

template <class Base, class DotProduct>
struct KeyTile<Avx512DotBf16<Base, DotProduct>, PKV_BF16>
    : FloatKeyTile<Avx512DotBf16<Base, DotProduct>, PKV_BF16> {
  using Isa = Avx512DotBf16<Base, DotProduct>;

  static size_t query_bytes(uint32_t dim) { return sizeof(SplitQuery) + size_t{dim} * 4; }

  static void prepare(const float* row, uint32_t dim, float scale, void* to) {
    SplitQuery* const query = static_cast<SplitQuery*>(to);
    uint32_t* const words = query->words();
    query->kind = is_whole(row, dim, scale) ? SplitQuery::whole
                  : is_finite(row, dim)     ? SplitQuery::split
                                            : SplitQuery::floats;
    query->factor = query->kind == SplitQuery::whole ? scale : 1.0f;
    if (query->kind == SplitQuery::floats) {
      __builtin_memcpy(words, row, size_t{dim} * 4);
      return;
    }
    for (uint32_t d = 0; d < dim; d += tile_tokens) {
      __m512 q = _mm512_loadu_ps(row + d);
      if (query->kind == SplitQuery::whole) q = unscaled_bf16(q, scale);
      const __m512i high = high_part(q);
      store_pairs(words + d / 2, high);
      store_pairs(words + (dim + d) / 2, nearest_bf16(low_part(q, _mm512_castsi512_ps(high))));
    }
  }

  template <unsigned rows, unsigned tiles>
  static void scores(const void* q, uint32_t dim, TilePointers at, TilePointers next,
                     ScoreRow* scores) {
    static_assert(tiles == 1);
    bool whole = true, finite = true;
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) {
      whole &= query_of(q, r, dim).kind == SplitQuery::whole;
      finite &= query_of(q, r, dim).kind != SplitQuery::floats;
    }
    if (whole)
      multiply<rows, false>(q, dim, *at, *next, scores);
    else if (finite) [[likely]]
      multiply<rows, true>(q, dim, *at, *next, scores);
    else
      multiply_one_by_one<rows>(q, dim, at, next, scores);
  }

  // True if the row is finite and bf16 times the scale, without denormals, which the dot product
  // takes for 0.
  static bool is_whole(const float* row, uint32_t dim, float scale) {
    const __m512 min_normal = _mm512_set1_ps(0x1p-126f), zero = _mm512_setzero_ps();
    for (uint32_t d = 0; d < dim; d += tile_tokens) {
      const __m512 q = _mm512_loadu_ps(row + d), b = unscaled_bf16(q, scale);
      const __mmask16 same =
          _mm512_cmp_ps_mask(_mm512_mul_ps(b, _mm512_set1_ps(scale)), q, _CMP_EQ_OQ);
      const __mmask16 normal =
          _mm512_cmp_ps_mask(_mm512_abs_ps(b), min_normal, _CMP_GE_OQ) & finite_lanes(b);
      if ((same & (normal | _mm512_cmp_ps_mask(b, zero, _CMP_EQ_OQ))) != 0xFFFF) return false;
    }
    return true;
  }

  // Writes such a row as dim / 2 words of pairs of bf16.
  static void put_whole(const float* row, uint32_t dim, float scale, uint32_t* words) {
    for (uint32_t d = 0; d < dim; d += tile_tokens)
      store_pairs(words + d / 2,
                  _mm512_castps_si512(unscaled_bf16(_mm512_loadu_ps(row + d), scale)));
  }

 private:
  static bool is_finite(const float* row, uint32_t dim) {
    __mmask16 finite = 0xFFFF;
    for (uint32_t d = 0; d < dim; d += tile_tokens)
      finite &= finite_lanes(_mm512_loadu_ps(row + d));
    return finite == 0xFFFF;
  }

  template <unsigned rows>
  static void multiply_one_by_one(const void* q, uint32_t dim, TilePointers at, TilePointers next,
                                  ScoreRow* scores) {
    for (unsigned r = 0; r < rows; r++) {
      const SplitQuery& query = query_of(q, r, dim);
      if (query.kind == SplitQuery::floats)
        FloatKeyTile<Isa, PKV_BF16>::template scores<1, 1>(query.words(), dim, at, next,
                                                           scores + r);
      else
        KeyTile::template scores<1, 1>(&query, dim, at, next, scores + r);
    }
  }

  static const SplitQuery& query_of(const void* rows, unsigned r, uint32_t dim) {
    return *reinterpret_cast<const SplitQuery*>(static_cast<const unsigned char*>(rows) +
                                                r * query_bytes(dim));
  }

  // The sums of high ones are the same with and without low ones: a row's scores do not depend on
  // the rows beside it.
  template <unsigned rows, bool with_low>
  static void multiply(const void* q, uint32_t dim, const unsigned char* tile,
                       const unsigned char* next, ScoreRow* scores) {
    const size_t stride = query_bytes(dim) / 4;
    const uint32_t pairs = dim / 2;
    const uint32_t* const words = query_of(q, 0, dim).words();
    __m512 high[2][rows], low[rows];  // two sums hide the latency of the additions
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) high[0][r] = high[1][r] = low[r] = _mm512_setzero_ps();

    for (uint32_t i = 0; i < pairs; i += 2) {
      prefetch_lines<Isa>(next + i * 64, 128);
      PKV_UNROLL
      for (uint32_t j = 0; j < 2; j++) {
        const __m512i k = _mm512_loadu_si512(tile + (i + j) * 64);
        PKV_UNROLL
        for (unsigned r = 0; r < rows; r++) {
          const uint32_t* const row = words + r * stride + i + j;
          high[j][r] = DotProduct::dot(high[j][r], k, _mm512_set1_epi32(static_cast<int>(row[0])));
          if constexpr (with_low)
            low[r] = DotProduct::dot(low[r], k, _mm512_set1_epi32(static_cast<int>(row[pairs])));
        }
      }
    }
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) {
      __m512 total = _mm512_add_ps(high[0][r], high[1][r]);
      if constexpr (with_low) total = _mm512_add_ps(total, low[r]);
      _mm512_store_ps(scores[r], _mm512_mul_ps(total, _mm512_set1_ps(query_of(q, r, dim).factor)));
    }
  }

  // The upper half of q. For a denormal it is the smallest normal number instead, because the
  // instruction would take the denormal for 0.
  static __m512i high_part(__m512 q) {
    const __mmask16 denormal =
        _mm512_cmp_ps_mask(_mm512_abs_ps(q), _mm512_set1_ps(0x1p-126f), _CMP_LT_OQ);
    const __mmask16 zero = _mm512_cmp_ps_mask(q, _mm512_setzero_ps(), _CMP_EQ_OQ);
    const __m512 min_normal =
        _mm512_or_ps(_mm512_and_ps(q, _mm512_set1_ps(-0.0f)), _mm512_set1_ps(0x1p-126f));
    return upper_halves(_mm512_castps_si512(
        _mm512_mask_mov_ps(q, denormal & static_cast<__mmask16>(~zero), min_normal)));
  }

  // q - high, but not 0 unless q is 0: with an infinite K, 0 would give NaN where q gives infinity.
  // The smallest normal number takes its place; no finite score can tell it from 0.
  static __m512 low_part(__m512 q, __m512 high) {
    const __m512 rest = _mm512_sub_ps(q, high);
    const __m512 sign = _mm512_and_ps(q, _mm512_set1_ps(-0.0f));
    const __m512 min_normal = _mm512_or_ps(sign, _mm512_set1_ps(0x1p-126f));
    const __mmask16 exact =
        _mm512_cmp_ps_mask(_mm512_abs_ps(rest), _mm512_set1_ps(0x1p-126f), _CMP_LT_OQ);
    const __mmask16 infinite =
        _mm512_cmp_ps_mask(q, high, _CMP_EQ_OQ);  // infinity - infinity is NaN
    const __mmask16 zero = _mm512_cmp_ps_mask(q, _mm512_setzero_ps(), _CMP_EQ_OQ);
    return _mm512_mask_mov_ps(_mm512_mask_mov_ps(rest, exact | infinite, min_normal), zero, q);
  }

  // Stores the upper halves of 16 words as 8 words.
  static void store_pairs(uint32_t* to, __m512i words) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                        _mm512_cvtepi32_epi16(_mm512_srli_epi32(words, 16)));
  }
};

template <class Base, class DotProduct>
struct ValueTile<Avx512DotBf16<Base, DotProduct>, PKV_BF16>
    : FloatValueTile<Avx512DotBf16<Base, DotProduct>, PKV_BF16> {
  static bool copy_panels(const unsigned char* tile, uint32_t dim, uint32_t present,
                          unsigned char* to, size_t panel_stride) {
    return copy_bf16_panels(tile, dim, present, to, panel_stride);
  }

  // Rounds the weights of n tokens to pairs of bf16, in place.
  static void round_weights(float* weights, uint32_t n) {
    for (uint32_t t = 0; t < n; t += tile_tokens)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(weights + t / 2),
                          DotProduct::round(_mm512_loadu_ps(weights + t)));
  }
};

}  // namespace pkv::kernels
