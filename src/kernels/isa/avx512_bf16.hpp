// Scores of bf16 K by the bf16 dot product: K is multiplied as it lies, without a conversion. A query is split into two
// bf16 numbers, q = high + low within 2^-16, once per walk over the tiles. The instruction is a parameter, so that a
// test can run all of this where the processor lacks it.
#pragma once

#include "kernels/isa/avx512.hpp"
#include "kernels/keys.hpp"

namespace pkv {

template <class XsimdArch, class DotProduct>
struct Avx512DotBf16 : Avx512Base<XsimdArch> {
  using Dot = DotProduct;
};

template <class XsimdArch, class DotProduct>
struct Keys<Avx512DotBf16<XsimdArch, DotProduct>, PKV_BF16> {
  using Isa = Avx512DotBf16<XsimdArch, DotProduct>;

  using Row = const uint32_t*;
  // The split queries lie on the stack: 32 KiB.
  static constexpr uint32_t capacity = 8192;

  // Per row key_dim / 2 words of high pairs, then as many of low pairs.
  class Queries {
   public:
    Queries(const AttendTask& task, const Chunk& chunk) : chunk_(chunk), key_dim_(task.kv.key_dim) {
      const uint64_t all_rows = uint64_t{task.queries} * task.group;
      for (uint32_t head = chunk.head_begin; head < chunk.head_end; head++)
        for (uint64_t r = chunk.row_begin; r < chunk.row_end; r++)
          split(task.q + (head * all_rows + r) * key_dim_, words_ + index(head, r));
    }

    Row row(uint32_t head, uint64_t row) const { return words_ + index(head, row); }

   private:
    uint64_t index(uint32_t head, uint64_t row) const {
      return ((head - chunk_.head_begin) * (chunk_.row_end - chunk_.row_begin) + (row - chunk_.row_begin)) * key_dim_;
    }

    void split(const float* q, uint32_t* to) const {
      for (uint32_t d = 0; d < key_dim_; d += tile_tokens) {
        const __m512i bits = _mm512_loadu_si512(q + d);
        const __m512i high = _mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u)));
        store_pairs(to + d / 2, high);
        store_pairs(to + (key_dim_ + d) / 2, rounded(low_part(_mm512_castsi512_ps(bits), _mm512_castsi512_ps(high))));
      }
    }

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
    static __m512i rounded(__m512 value) {
      const __m512i bits = _mm512_castps_si512(value);
      const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
      const __m512i nearest = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
      const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
      return _mm512_mask_or_epi32(nearest, nan, bits, _mm512_set1_epi32(0x400000));
    }

    // The upper halves of 16 words as 8 words.
    static void store_pairs(uint32_t* to, __m512i words) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(_mm512_srli_epi32(words, 16)));
    }

    const Chunk chunk_;
    const uint32_t key_dim_;
    alignas(64) uint32_t words_[capacity];
  };

  template <unsigned rows>
  static void scores(Row q, uint32_t key_dim, const unsigned char* tile, const unsigned char* next,
                     float (*scores)[tile_tokens]) {
    const uint32_t pairs = key_dim / 2;
    __m512 high[rows], low[rows];
#pragma GCC unroll 16
    for (unsigned r = 0; r < rows; r++) high[r] = low[r] = _mm512_setzero_ps();

    for (uint32_t i = 0; i < pairs; i++) {
      __builtin_prefetch(next + i * 64);
      const __m512i k = _mm512_loadu_si512(tile + i * 64);
#pragma GCC unroll 16
      for (unsigned r = 0; r < rows; r++) {
        const uint32_t* row = q + r * key_dim;
        high[r] = DotProduct::dot(high[r], k, _mm512_set1_epi32(static_cast<int>(row[i])));
        low[r] = DotProduct::dot(low[r], k, _mm512_set1_epi32(static_cast<int>(row[pairs + i])));
      }
    }
#pragma GCC unroll 16
    for (unsigned r = 0; r < rows; r++) _mm512_store_ps(scores[r], _mm512_add_ps(high[r], low[r]));
  }
};

}  // namespace pkv
