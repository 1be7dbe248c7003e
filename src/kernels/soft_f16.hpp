// Conversions of binary16 for instruction sets that lack them, computed with 32-bit integers and
// floats.
#pragma once

#include "kernels/vectors.hpp"

namespace pkv::kernels {

template <class Isa>
Floats<Isa> soft_f16_to_f32(Words<Isa> half_bits) {
  using I = Ints<Isa>;
  const I half = same_bits<I>(half_bits);
  const I magnitude = (half & I(0x7FFF)) << 13, sign = (half & I(0x8000)) << 16;
  // Read as fp32, the magnitude is 2^-112 times the number, also for denormals. The product is
  // exact.
  const I finite = same_bits<I>(same_bits<Floats<Isa>>(magnitude) * Floats<Isa>(0x1p112f));
  const I quiet = xsimd::select((half & I(0x3FF)) == I(0), I(0), I(0x400000));
  const I special = magnitude | I(0x7F800000) | quiet;
  return same_bits<Floats<Isa>>(xsimd::select((half & I(0x7C00)) == I(0x7C00), special, finite) |
                                sign);
}

template <class Isa>
Words<Isa> soft_f32_to_f16(Floats<Isa> value) {
  using I = Ints<Isa>;
  const I bits = same_bits<I>(value);
  const I magnitude = bits & I(0x7FFFFFFF), sign = (bits >> 16) & I(0x8000);
  // Rounding may carry into the exponent, up to infinity.
  const I normal = (magnitude - I(0x38000000) + I(0xFFF) + ((magnitude >> 13) & I(1))) >> 13;
  // The last place of 0.5f is that of a denormal binary16 number, so adding it rounds to such a
  // number.
  const I denormal =
      same_bits<I>(same_bits<Floats<Isa>>(magnitude) + Floats<Isa>(0.5f)) - I(0x3F000000);
  I half = xsimd::select(magnitude < I(0x38800000), denormal, normal);
  half = xsimd::select(magnitude < I(0x47800000), half, I(0x7C00));
  half = xsimd::select(magnitude > I(0x7F800000), I(0x7E00) | ((magnitude >> 13) & I(0x3FF)), half);
  return same_bits<Words<Isa>>(half | sign);
}

}  // namespace pkv::kernels
