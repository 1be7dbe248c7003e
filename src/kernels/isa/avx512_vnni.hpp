// AVX-512 with VNNI. With few rows int8 and int4 are multiplied as bytes: one instruction computes
// four products and adds them up. With many rows they are multiplied in pairs of 16 bits.
#pragma once

#include "kernels/integer_pairs.hpp"
#include "kernels/isa/avx512.hpp"
#include "kernels/isa/vnni_int4.hpp"
#include "kernels/isa/vnni_int8.hpp"

namespace pkv::kernels {

template <class Base>
struct WithVnni : Base {
  static constexpr unsigned byte_sums = 8;
  static constexpr bool multiplies_integer_pairs = true;
  using I = typename Base::I;
  using U = typename Base::U;
  using F = typename Base::F;

  // It is assembly, because GCC 12 copies the sum before and after the intrinsic.
  static I dot_pairs(I sum, U a, U b) {
    __m512i total = sum;
    __asm__("vpdpwssd %2, %1, %0" : "+v"(total) : "v"(__m512i(a)), "v"(__m512i(b)));
    return I(total);
  }

  static I dot_bytes(I sum, U a, U b) { return I(_mm512_dpbusd_epi32(sum, a, b)); }
  static void narrow_ordered(void* to, U words, __m128i order) {
    const __m256i ordered =
        _mm256_shuffle_epi8(_mm512_cvtepi32_epi16(words), _mm256_broadcastsi128_si256(order));
    _mm256_storeu_si256(static_cast<__m256i*>(to), ordered);
  }

  // Rounds two vectors to integers and stores them as halves.
  static void narrow_rounded(void* to, F first, F second) {
    const __m512i halves =
        _mm512_packs_epi32(_mm512_cvtps_epi32(first), _mm512_cvtps_epi32(second));
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi64(order, halves));
  }
};

}  // namespace pkv::kernels
