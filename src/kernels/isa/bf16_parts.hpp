// Numbers as sums of bf16 numbers, which a matrix unit multiplies. The upper half of an fp32 number
// has its first 8 significant bits, so nothing is left after they are cut off three times. So fp32
// is exactly the sum of three parts, f16 of two, products of int4 and their scales of two, and
// bf16, fp8 and int8 of one.
//
// A product of sums is the sum of the products of parts (Henry, Tang and Heinecke 2019). Parts are
// counted from 0, and a product is left out if the numbers of its parts add up to more than 2: part
// 1 is below 2^-7 of the number and part 2 below 2^-15, so each product left out is below 2^-22 of
// the whole. f16 for results of f16 has two rounded parts, and the product of two second parts is
// left out, too: at most 2^-16 of the whole. The same holds for queries and K of q8_0 and q4_0,
// whose queries other sets round to as many bits, since they multiply integers. A product of q8_0
// and its scale has 19 bits, and two rounded parts have all but 2^-17 of it.
#pragma once

#include <immintrin.h>

#include "kernels/vectors.hpp"

namespace pkv::kernels {

inline constexpr unsigned max_parts = 3;

// Returns the number of parts of an element of K or V. An int8 element is taken without its scale.
static inline constexpr unsigned parts_of(pkv_dtype dtype) {
  switch (dtype) {
    case PKV_F32:
      return 3;
    case PKV_F16:
    case PKV_INT4:
    case PKV_Q4_0:
    case PKV_Q8_0:
      return 2;
    default:
      return 1;
  }
}

static inline __m512i upper_halves(__m512i bits) {
  return _mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u)));
}

// Returns the bf16 or f16 number that, times 1 / inverse, may be x.
static inline __m512 unscaled_bf16(__m512 x, __m512 inverse) {
  const __m512i bits = _mm512_castps_si512(_mm512_mul_ps(x, inverse));
  return _mm512_castsi512_ps(upper_halves(_mm512_add_epi32(bits, _mm512_set1_epi32(0x8000))));
}
static inline __m512 unscaled_f16(__m512 x, __m512 inverse) {
  return _mm512_cvtph_ps(_mm512_cvtps_ph(_mm512_mul_ps(x, inverse), _MM_FROUND_TO_NEAREST_INT));
}

// Returns the number of parts of a weight if its product with V becomes a result of this dtype. The
// last part is rounded, to 2^-9, 2^-16 or 2^-24 of the weight.
static inline constexpr unsigned parts_of_weights(pkv_dtype results) {
  return results == PKV_BF16 ? 1 : results == PKV_F16 ? 2 : max_parts;
}

// Returns the next part of x, in the upper half of each lane. The rest stays in x. A part that is
// rounded leaves at most 2^-8 of x, with any sign.
static inline __m512i cut_part(__m512& x, bool rounded) {
  __m512i bits = _mm512_castps_si512(x);
  if (rounded) bits = _mm512_add_epi32(bits, _mm512_set1_epi32(0x8000));
  const __m512i part = upper_halves(bits);
  x = _mm512_sub_ps(x, _mm512_castsi512_ps(part));
  return part;
}

// Pairs of parts, one from each of two vectors: the first in the lower halves.
static inline __m512i pair_parts(__m512i first, __m512i second) {
  return _mm512_or_si512(_mm512_srli_epi32(first, 16), second);
}

// Writes parts of two vectors as pairs; those of part i go to to + i * stride.
static inline void put_pairs(__m512 first, __m512 second, unsigned parts, bool rounded,
                             unsigned char* to, size_t stride) {
  for (unsigned i = 0; i < parts; i++, to += stride)
    _mm512_store_si512(to, pair_parts(cut_part(first, rounded), cut_part(second, rounded)));
}

// Writes parts of one vector, 16 bf16 numbers each. The rest stays in x.
static inline void put_parts(__m512& x, unsigned parts, bool rounded, unsigned char* to,
                             size_t stride) {
  for (unsigned i = 0; i < parts; i++, to += stride)
    _mm256_store_si256(reinterpret_cast<__m256i*>(to),
                       _mm512_cvtepi32_epi16(_mm512_srli_epi32(cut_part(x, rounded), 16)));
}

// The lanes that are neither NaN nor infinite.
static inline __mmask16 finite_lanes(__m512 x) {
  return _mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(__builtin_inff()), _CMP_LT_OQ);
}

// A row of queries in parts.
struct QueryParts {
  float factor;    // scores are multiplied by it
  uint32_t count;  // parts that are not 0; 0 if the row has a NaN or an infinity
  uint32_t unused[6];
};

// Returns whether a row is unscaled(row, 1 / scale) * scale.
template <class Unscaled>
[[gnu::always_inline]] inline bool is_scaled(const float* row, uint32_t dim, float scale,
                                             const Unscaled& unscaled) {
  const __m512 scales = _mm512_set1_ps(scale), inverse = _mm512_set1_ps(1 / scale);
  __mmask16 same = 0xFFFF;
  for (uint32_t d = 0; d < dim; d += tile_tokens) {
    const __m512 x = _mm512_loadu_ps(row + d);
    same =
        _mm512_mask_cmp_ps_mask(same, _mm512_mul_ps(unscaled(x, inverse), scales), x, _CMP_EQ_OQ);
  }
  return same == 0xFFFF;
}

static inline bool is_finite(const float* row, uint32_t dim) {
  __m512i largest = _mm512_setzero_si512();
  for (uint32_t d = 0; d < dim; d += tile_tokens)
    largest =
        _mm512_max_epu32(largest, _mm512_castps_si512(_mm512_abs_ps(_mm512_loadu_ps(row + d))));
  return _mm512_cmplt_epu32_mask(largest, _mm512_set1_epi32(0x7F800000)) == 0xFFFF;
}

// Finds the parts of a row of queries. A row that was bf16 or f16 before it was multiplied by the
// scale is written without the scale. `rounded`: as at most two parts, which are rounded.
static inline QueryParts find_query_parts(const float* row, uint32_t dim, float scale,
                                          bool rounded) {
  if (!is_finite(row, dim)) return {1, 0, {}};
  if (is_scaled(row, dim, scale, unscaled_bf16)) return {scale, 1, {}};
  if (is_scaled(row, dim, scale, unscaled_f16)) return {scale, 2, {}};
  return {1, rounded ? 2 : max_parts, {}};
}

// Writes `written` parts of a row, at least as many as it has, with zeros from `dim` to
// `padded_dim`.
static inline void put_query_parts(const float* row, uint32_t dim, uint32_t padded_dim,
                                   const QueryParts& parts, bool rounded, unsigned written,
                                   unsigned char* to, size_t stride) {
  const __m512 inverse = _mm512_set1_ps(1 / parts.factor);
  for (uint32_t d = 0; d < padded_dim; d += tile_tokens) {
    __m512 x = _mm512_setzero_ps();
    if (d < dim && parts.count != 0) x = _mm512_loadu_ps(row + d);
    if (parts.count == 1)
      x = unscaled_bf16(x, inverse);
    else if (parts.count == 2 && parts.factor != 1)  // not a row that was merely rounded
      x = unscaled_f16(x, inverse);
    put_parts(x, written, rounded, to + d * 2, stride);
  }
}

// Copies bf16 V as it is stored into panels of 16 dims, [pair of tokens][16 dims][2], that are
// panel_stride bytes apart. Tokens that are not present become 0. Returns false if a number is not
// finite.
static inline bool copy_bf16_panels(const unsigned char* tile, uint32_t dim, uint32_t present,
                                    unsigned char* to, size_t panel_stride) {
  const __m512i without_sign = _mm512_set1_epi16(0x7FFF);
  __m512i largest = _mm512_setzero_si512();
  for (uint32_t pair = 0; pair < tile_tokens / 2; pair++) {
    const uint32_t there = present >> 2 * pair;
    const __m512i mask = _mm512_set1_epi32(
        static_cast<int>(((there & 1) != 0 ? 0xFFFFu : 0) | ((there & 2) != 0 ? 0xFFFF0000u : 0)));
    for (uint32_t d = 0; d < dim; d += tile_tokens) {
      const __m512i v =
          _mm512_and_si512(_mm512_loadu_si512(tile + (size_t{pair} * dim + d) * 4), mask);
      largest = _mm512_max_epu16(largest, _mm512_and_si512(v, without_sign));
      _mm512_store_si512(to + d / tile_tokens * panel_stride + pair * 64, v);
    }
  }
  return _mm512_cmplt_epu16_mask(largest, _mm512_set1_epi16(0x7F80)) == 0xFFFFFFFFu;
}

}  // namespace pkv::kernels
