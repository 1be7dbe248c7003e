// Shared by the AVX-512 files. It needs AVX-512 F, CD, DQ, BW and VL.
#pragma once

#include "kernels/vectors.hpp"

namespace pkv::kernels {

template <class XsimdArch>
struct Avx512Base {
  using Arch = XsimdArch;
  using F = xsimd::batch<float, Arch>;
  using U = xsimd::batch<uint32_t, Arch>;
  using I = xsimd::batch<int32_t, Arch>;
  static constexpr unsigned matmul_rows = 12;
  static constexpr unsigned direct_rows = 8;

  static F fma(F a, F b, F c) { return F(_mm512_fmadd_ps(a, b, c)); }
  static I dot_pairs(I sum, U a, U b) { return I(_mm512_add_epi32(sum, _mm512_madd_epi16(a, b))); }
  static U shift_left_halves(U x, int n) {
    return U(_mm512_slli_epi16(x, static_cast<unsigned>(n)));
  }
  static U shift_right_halves(U x, int n) {
    return U(_mm512_srai_epi16(x, static_cast<unsigned>(n)));
  }
  static U widen_bytes(const void* from) {
    return U(_mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(from))));
  }
  static U widen(const void* from) {
    return U(_mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(from))));
  }
  static U signed_bytes(const void* a, const void* b) {
    const __m256i low = _mm256_castsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(a)));
    return U(_mm512_cvtepi8_epi16(
        _mm256_inserti128_si256(low, _mm_loadu_si128(static_cast<const __m128i*>(b)), 1)));
  }
  static U signed_halves(const void* from) {
    return U(_mm512_cvtepi8_epi16(_mm256_loadu_si256(static_cast<const __m256i*>(from))));
  }
  static I signed_lanes(const void* from) {
    return I(_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(from))));
  }
  static void split_nibbles(const void* from, U (&to)[1]) {
    const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(from));
    const __m256i both =
        _mm256_inserti128_si256(_mm256_castsi128_si256(bytes), _mm_srli_epi16(bytes, 4), 1);
    to[0] = U(_mm512_cvtepu8_epi16(_mm256_and_si256(both, _mm256_set1_epi8(15))));
  }
  static U add_halves(U a, U b) { return U(_mm512_add_epi16(a, b)); }
  static void narrow(void* to, U words) {
    _mm256_storeu_si256(static_cast<__m256i*>(to), _mm512_cvtepi32_epi16(words));
  }
  static constexpr bool has_f16 = true;
  static F load_f16(const void* from) {
    return F(_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(from))));
  }
  static void store_f16(void* to, F value) {
    _mm256_storeu_si256(static_cast<__m256i*>(to),
                        _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }

  // 2^x for x <= 0, within 3 units in the last place: 0 below -126, where the result would not be
  // normal; NaN for NaN; exactly 1 for 0. With r = x - floor(x) the result is 2^floor(x) p(r),
  // where p is the minimax polynomial of degree 5 on 0 to 1 whose first coefficient is 1.
  static F power_of_2(F x) {
    const __m512 r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    __m512 p = _mm512_set1_ps(0x1.e974fap-10f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.277856p-7f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.c91ce6p-5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.ebdb56p-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.62e4bap-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    const __mmask16 normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
    return F(_mm512_maskz_scalef_ps(normal, p, x));
  }

  static float max_of(F x) { return _mm512_reduce_max_ps(x); }
  static float sum_of(F x) { return _mm512_reduce_add_ps(x); }
  // Each 128 bits of the result have parts of the sums of four vectors.
  static F quad_sums(const F* x) {
    const __m512 first = _mm512_unpacklo_ps(x[0], x[1]) + _mm512_unpackhi_ps(x[0], x[1]);
    const __m512 last = _mm512_unpacklo_ps(x[2], x[3]) + _mm512_unpackhi_ps(x[2], x[3]);
    return F(_mm512_shuffle_ps(first, last, 0x44) + _mm512_shuffle_ps(first, last, 0xEE));
  }
  // Returns sums_of() the vectors that four quads were made of.
  static F sums_of_quads(const F (&quads)[4]) {
    const auto add_quads = [](__m512 a, __m512 b) {
      return _mm512_shuffle_f32x4(a, b, 0x88) + _mm512_shuffle_f32x4(a, b, 0xDD);
    };
    return F(add_quads(add_quads(quads[0], quads[1]), add_quads(quads[2], quads[3])));
  }
  static F sums_of(const F* x) {
    const F quads[4] = {quad_sums(x), quad_sums(x + 4), quad_sums(x + 8), quad_sums(x + 12)};
    return sums_of_quads(quads);
  }

  static U load_quads(const unsigned char* const* rows, int64_t offset) {
    const auto quad = [&](int row) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[row] + offset));
    };
    const __m512i two = _mm512_inserti32x4(_mm512_castsi128_si512(quad(0)), quad(4), 1);
    return U(_mm512_inserti32x4(_mm512_inserti32x4(two, quad(8), 2), quad(12), 3));
  }
  static void transpose_quads(U (&rows)[4]) {
    const __m512i low01 = _mm512_unpacklo_epi32(rows[0], rows[1]),
                  high01 = _mm512_unpackhi_epi32(rows[0], rows[1]);
    const __m512i low23 = _mm512_unpacklo_epi32(rows[2], rows[3]),
                  high23 = _mm512_unpackhi_epi32(rows[2], rows[3]);
    rows[0] = U(_mm512_unpacklo_epi64(low01, low23));
    rows[1] = U(_mm512_unpackhi_epi64(low01, low23));
    rows[2] = U(_mm512_unpacklo_epi64(high01, high23));
    rows[3] = U(_mm512_unpackhi_epi64(high01, high23));
  }
};

}  // namespace pkv::kernels
