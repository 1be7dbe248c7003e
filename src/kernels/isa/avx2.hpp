// Shared by AVX2 and AVX-VNNI. It needs AVX2 with FMA and F16C.
#pragma once

#include "kernels/integer_pairs.hpp"
#include "kernels/vectors.hpp"

namespace pkv::kernels {

template <class XsimdArch>
struct Avx2Base {
  using Arch = XsimdArch;
  using F = xsimd::batch<float, Arch>;
  using U = xsimd::batch<uint32_t, Arch>;
  using I = xsimd::batch<int32_t, Arch>;
  static constexpr unsigned matmul_rows = 6;
  static constexpr unsigned direct_rows = 4;

  static F fma(F a, F b, F c) { return xsimd::fma(a, b, c); }
  static constexpr bool multiplies_integer_pairs = true;
  // It is assembly, because GCC 12 keeps products for later, and so has no registers for the sums.
  static I dot_pairs(I sum, U a, U b) {
    __m256i total = sum, products;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0"
            : "+x"(total), "=&x"(products)
            : "x"(__m256i(a)), "x"(__m256i(b)));
    return I(total);
  }
  static U shift_left_halves(U x, int n) { return U(_mm256_slli_epi16(x, n)); }
  static U shift_right_halves(U x, int n) { return U(_mm256_srai_epi16(x, n)); }
  static U widen_bytes(const void* from) {
    return U(_mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(from))));
  }
  static U widen(const void* from) {
    return U(_mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(from))));
  }
  static U signed_bytes(const void* a, const void* b) {
    const __m128i low = _mm_loadl_epi64(static_cast<const __m128i*>(a)),
                  high = _mm_loadl_epi64(static_cast<const __m128i*>(b));
    return U(_mm256_cvtepi8_epi16(_mm_unpacklo_epi64(low, high)));
  }
  static U signed_halves(const void* from) {
    return U(_mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(from))));
  }
  static I signed_lanes(const void* from) {
    return I(_mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(from))));
  }
  static void split_nibbles(const void* from, U (&to)[2]) {
    const U bytes(_mm256_cvtepu8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(from))));
    to[0] = bytes & U(0x000F000Fu);
    to[1] = bytes >> 4 & U(0x000F000Fu);
  }
  static U add_halves(U a, U b) { return U(_mm256_add_epi16(a, b)); }
  static __m128i lower_halves(U words) {
    const __m256i halves =
        _mm256_and_si256(words, _mm256_set1_epi32(0xFFFF));  // so that packus does not saturate
    return _mm_packus_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
  }
  static void narrow(void* to, U words) {
    _mm_storeu_si128(static_cast<__m128i*>(to), lower_halves(words));
  }
  // Rounds two vectors to integers and stores them as halves.
  static void narrow_rounded(void* to, F first, F second) {
    const __m256i halves =
        _mm256_packs_epi32(_mm256_cvtps_epi32(first), _mm256_cvtps_epi32(second));
    _mm256_storeu_si256(static_cast<__m256i*>(to),
                        _mm256_permute4x64_epi64(halves, _MM_SHUFFLE(3, 1, 2, 0)));
  }
  static constexpr bool has_f16 = true;
  static F load_f16(const void* from) {
    return F(_mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(from))));
  }
  static void store_f16(void* to, F value) {
    _mm_storeu_si128(static_cast<__m128i*>(to), _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }

  static float max_of(F x) {
    const __m128 quads = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 pairs = _mm_max_ps(quads, _mm_movehl_ps(quads, quads));
    return _mm_cvtss_f32(_mm_max_ss(pairs, _mm_movehdup_ps(pairs)));
  }
  static float sum_of(F x) {
    const __m128 quads = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 pairs = _mm_add_ps(quads, _mm_movehl_ps(quads, quads));
    return _mm_cvtss_f32(_mm_add_ss(pairs, _mm_movehdup_ps(pairs)));
  }
  static F sums_of(const F* x) { return xsimd::haddp(x); }

  static U load_quads(const unsigned char* const* rows, int64_t offset) {
    return U(_mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(rows[4] + offset),
                                 reinterpret_cast<const __m128i*>(rows[0] + offset)));
  }
  static void transpose_quads(U (&rows)[4]) {
    const __m256i low01 = _mm256_unpacklo_epi32(rows[0], rows[1]),
                  high01 = _mm256_unpackhi_epi32(rows[0], rows[1]);
    const __m256i low23 = _mm256_unpacklo_epi32(rows[2], rows[3]),
                  high23 = _mm256_unpackhi_epi32(rows[2], rows[3]);
    rows[0] = U(_mm256_unpacklo_epi64(low01, low23));
    rows[1] = U(_mm256_unpackhi_epi64(low01, low23));
    rows[2] = U(_mm256_unpacklo_epi64(high01, high23));
    rows[3] = U(_mm256_unpackhi_epi64(high01, high23));
  }
};

}  // namespace pkv::kernels
