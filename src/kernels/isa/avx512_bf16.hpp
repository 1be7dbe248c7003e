// Scores of bf16 K by the bf16 dot product: K is multiplied as it lies, without a conversion. A query is split into two
// bf16 numbers, q = high + low within 2^-16, once per walk over the tiles. The instruction is a parameter, so that a
// test can run all of this where the processor lacks it.
#pragma once

#include "kernels/isa/avx512.hpp"
#include "kernels/keys.hpp"

namespace pkv {

template <class Base, class DotProduct>
struct Avx512DotBf16 : Base {
  using Dot = DotProduct;
};

// A query row as two bf16 numbers per dim: dim / 2 words of high pairs, then as many of low pairs.
template <class Base, class DotProduct>
struct KeyTile<Avx512DotBf16<Base, DotProduct>, PKV_BF16> : FloatKeyTile<Avx512DotBf16<Base, DotProduct>, PKV_BF16> {
  using Isa = Avx512DotBf16<Base, DotProduct>;

  static size_t query_bytes(uint32_t dim) { return size_t{dim} * 4; }

  static void prepare(const float* row, uint32_t dim, void* to) {
    uint32_t* const words = static_cast<uint32_t*>(to);
    for (uint32_t d = 0; d < dim; d += tile_tokens) {
      const __m512i bits = _mm512_loadu_si512(row + d);
      const __m512i high = _mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u)));
      store_pairs(words + d / 2, high);
      store_pairs(words + (dim + d) / 2, nearest(low_part(_mm512_castsi512_ps(bits), _mm512_castsi512_ps(high))));
    }
  }

  template <unsigned rows, unsigned tiles>
  static void scores(const void* q, uint32_t dim, TilePointers at, TilePointers next_at, ScoreRow* scores) {
    static_assert(tiles == 1);
    const unsigned char *const tile = *at, *const next = *next_at;
    const uint32_t pairs = dim / 2;
    const uint32_t* const words = static_cast<const uint32_t*>(q);
    __m512 high[rows], low[rows];
#pragma GCC unroll 16
    for (unsigned r = 0; r < rows; r++) high[r] = low[r] = _mm512_setzero_ps();

    for (uint32_t i = 0; i < pairs; i++) {
      prefetch_lines<Isa>(next + i * 64, 64);
      const __m512i k = _mm512_loadu_si512(tile + i * 64);
#pragma GCC unroll 16
      for (unsigned r = 0; r < rows; r++) {
        const uint32_t* const row = words + r * dim;
        high[r] = DotProduct::dot(high[r], k, _mm512_set1_epi32(static_cast<int>(row[i])));
        low[r] = DotProduct::dot(low[r], k, _mm512_set1_epi32(static_cast<int>(row[pairs + i])));
      }
    }
#pragma GCC unroll 16
    for (unsigned r = 0; r < rows; r++) _mm512_store_ps(scores[r], _mm512_add_ps(high[r], low[r]));
  }

 private:
  // q - high, but never 0 unless q is: an infinite K then gives the infinity it gives with q, not 0 * infinity. The
  // smallest normal number stands in, which no finite score can tell from 0.
  static __m512 low_part(__m512 q, __m512 high) {
    const __m512 rest = _mm512_sub_ps(q, high);
    const __m512 sign = _mm512_and_ps(q, _mm512_set1_ps(-0.0f));
    const __m512 least = _mm512_or_ps(sign, _mm512_set1_ps(0x1p-126f));
    const __mmask16 exact = _mm512_cmp_ps_mask(_mm512_abs_ps(rest), _mm512_set1_ps(0x1p-126f), _CMP_LT_OQ);
    const __mmask16 infinite = _mm512_cmp_ps_mask(q, high, _CMP_EQ_OQ);  // infinity - infinity is NaN
    const __mmask16 zero = _mm512_cmp_ps_mask(q, _mm512_setzero_ps(), _CMP_EQ_OQ);
    return _mm512_mask_mov_ps(_mm512_mask_mov_ps(rest, exact | infinite, least), zero, q);
  }

  // To bf16 in the upper halves; NaN may become infinity only where high is NaN or q was one, and stays one here.
  static __m512i nearest(__m512 value) {
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(sum, nan, bits, _mm512_set1_epi32(0x400000));
  }

  // The upper halves of 16 words as 8 words.
  static void store_pairs(uint32_t* to, __m512i words) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(_mm512_srli_epi32(words, 16)));
  }
};

}  // namespace pkv
