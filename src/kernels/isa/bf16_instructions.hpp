// The instructions of AVX512_BF16.
#pragma once

#include <immintrin.h>

namespace pkv::kernels {

// Each file that includes this has a copy, compiled with its own flags.
namespace {

struct Bf16Instructions {
  // sum + a.even * b.even + a.odd * b.odd, for the pair of bf16 numbers in each lane.
  static __m512 dot(__m512 sum, __m512i a, __m512i b) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
  }
  // Rounds to the nearest bf16 numbers.
  static __m256i round(__m512 x) { return (__m256i)_mm512_cvtneps_pbh(x); }
};

}  // namespace

}  // namespace pkv::kernels
