// AVX-512 with VNNI: int8 and int4 are multiplied as bytes. One instruction computes four products
// and adds them up.
#pragma once

#include "kernels/isa/avx512.hpp"
#include "kernels/isa/vnni_int4.hpp"
#include "kernels/isa/vnni_int8.hpp"

namespace pkv::kernels {

template <class Base>
struct WithVnni : Base {
  static constexpr bool multiplies_bytes = true;
};

template <class Isa>
concept MultipliesBytes = requires { Isa::multiplies_bytes; };

template <MultipliesBytes Isa>
struct KeyTile<Isa, PKV_INT8> : VnniInt8KeyTile<Isa> {};
template <MultipliesBytes Isa>
struct ValueTile<Isa, PKV_INT8> : VnniInt8ValueTile<Isa> {};
template <MultipliesBytes Isa>
struct KeyTile<Isa, PKV_INT4> : VnniInt4KeyTile<Isa> {};
template <MultipliesBytes Isa>
struct ValueTile<Isa, PKV_INT4> : VnniInt4ValueTile<Isa> {};

}  // namespace pkv::kernels
