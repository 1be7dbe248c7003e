// The instructions of AVX512_BF16, computed by those of AVX-512 F.
#pragma once

#include <immintrin.h>

namespace pkv::kernels {

struct EmulatedDotProduct {
  static __m512 lower(__m512i pair) { return _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16)); }
  static __m512 upper(__m512i pair) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(pair, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))));
  }
  // Replaces denormals by 0, as the instruction does.
  static __m512 flushed(__m512 x) {
    const __mmask16 normal =
        _mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(0x1p-126f), _CMP_NLT_UQ);
    return _mm512_maskz_mov_ps(normal, x);
  }
  static __m512 dot(__m512 sum, __m512i a, __m512i b) {
    const __m512 first = _mm512_fmadd_ps(flushed(upper(a)), flushed(upper(b)), sum);
    return flushed(_mm512_fmadd_ps(flushed(lower(a)), flushed(lower(b)), first));
  }
  static __m256i round(__m512 x) {
    const __m512i bits = _mm512_castps_si512(x),
                  odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    const __m512i nan = _mm512_set1_epi32(0x7FC00000);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(
        _mm512_mask_mov_epi32(sum, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), nan), 16));
  }
};

}  // namespace pkv::kernels
