// AVX-512 with VNNI: a product of 16-bit pairs and its sum are one instruction.
#pragma once

#include "kernels/isa/avx512.hpp"

namespace pkv {

template <class Base>
struct WithVnni : Base {
  using I = typename Base::I;
  using U = typename Base::U;
  static I dot_pairs(I sum, U a, U b) { return I(_mm512_dpwssd_epi32(sum, a, b)); }
};

}  // namespace pkv
