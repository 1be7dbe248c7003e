// The instructions of AVX512_VBMI.
#pragma once

#include <immintrin.h>

namespace pkv::kernels {

// Each file that includes this has a copy, compiled with its own flags.
namespace {

struct ByteInstructions {
  static __m512i permute(__m512i order, __m512i x) { return _mm512_permutexvar_epi8(order, x); }
  static __m512i look_up(__m512i index, __m512i lower_table, __m512i upper_table) {
    return _mm512_permutex2var_epi8(lower_table, index, upper_table);
  }
};

}  // namespace

}  // namespace pkv::kernels
