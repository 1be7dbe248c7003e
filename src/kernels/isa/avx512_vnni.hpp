// AVX-512 with VNNI: a product of 16-bit pairs and its sum are one instruction; int4 is multiplied as bytes (vnni_int4.hpp).
#pragma once

#include "kernels/isa/avx512.hpp"
#include "kernels/isa/vnni_int4.hpp"

namespace pkv {

template <class Base>
struct WithVnni : Base {
  using I = typename Base::I;
  using U = typename Base::U;
  static I dot_pairs(I sum, U a, U b) { return I(_mm512_dpwssd_epi32(sum, a, b)); }
};

template <class Base>
struct KeyTile<WithVnni<Base>, PKV_INT4> : VnniInt4KeyTile<WithVnni<Base>> {};
template <class Base>
struct ValueTile<WithVnni<Base>, PKV_INT4> : VnniInt4ValueTile<WithVnni<Base>> {};

}  // namespace pkv
