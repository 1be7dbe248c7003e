// The two 8-bit floating-point dtypes (OCP 8-bit Floating Point Specification, 2023), computed with
// 32-bit integers and floats. A number that is too large becomes the largest finite one. e4m3 has
// no infinity, so infinities become NaN there.
#pragma once

#include "kernels/tile_layout.h"
#include "kernels/vectors.hpp"

namespace pkv::kernels {

template <pkv_dtype dtype>
struct Fp8 {
  static constexpr int mantissa_bits = dtype == PKV_FP8_E4M3 ? 3 : 2;
  static constexpr int bias = dtype == PKV_FP8_E4M3 ? 7 : 15;
  static constexpr int shift = 23 - mantissa_bits;
  static constexpr int32_t rebias = (127 - bias) << 23;
  static constexpr int32_t min_normal = 1 << mantissa_bits;  // smaller bits are denormals
  static constexpr int32_t largest = dtype == PKV_FP8_E4M3 ? 0x7E : 0x7B;
  static constexpr int32_t infinity = dtype == PKV_FP8_E4M3 ? 0x7F : 0x7C;
  static constexpr int32_t nan = 0x7F;
};

// 2^n for n >= -126.
constexpr float power_of_two(int n) { return __builtin_bit_cast(float, (n + 127) << 23); }

template <class Isa, pkv_dtype dtype>
Floats<Isa> fp8_to_f32(Words<Isa> byte) {
  using I = Ints<Isa>;
  using Type = Fp8<dtype>;
  const I bits = same_bits<I>(byte), magnitude = bits & I(0x7F), sign = (bits & I(0x80)) << 24;
  const I normal = (magnitude << Type::shift) + I(Type::rebias);
  // No operand is a denormal fp32 number, because a product with one takes a hundred cycles on some
  // CPUs.
  const I denormal = same_bits<I>(xsimd::to_float(magnitude) *
                                  Floats<Isa>(power_of_two(1 - Type::bias - Type::mantissa_bits)));
  I value = xsimd::select(magnitude < I(Type::min_normal), denormal, normal);
  if constexpr (dtype == PKV_FP8_E4M3)
    value = xsimd::select(magnitude == I(Type::nan), I(0x7FC00000), value);
  else
    value = xsimd::select(magnitude > I(Type::infinity), I(0x7FC00000),
                          xsimd::select(magnitude == I(Type::infinity), I(0x7F800000), value));
  return same_bits<Floats<Isa>>(value | sign);
}

template <class Isa, pkv_dtype dtype>
Words<Isa> f32_to_fp8(Floats<Isa> value) {
  using I = Ints<Isa>;
  using Type = Fp8<dtype>;
  const I bits = same_bits<I>(value);
  const I magnitude = bits & I(0x7FFFFFFF), sign = (bits >> 24) & I(0x80);
  const I half = I((1 << (Type::shift - 1)) - 1);
  const I normal =
      (magnitude - I(Type::rebias) + half + ((magnitude >> Type::shift) & I(1))) >> Type::shift;
  // The last place of `rounder` is that of a denormal fp8 number, so adding it rounds to such a
  // number.
  constexpr int unit = 1 - Type::bias - Type::mantissa_bits;
  const Floats<Isa> rounder(power_of_two(unit + 23));
  const I denormal = same_bits<I>(same_bits<Floats<Isa>>(magnitude) + rounder) -
                     I(__builtin_bit_cast(int32_t, power_of_two(unit + 23)));
  constexpr int32_t min_normal = (1 - Type::bias + 127) << 23;
  I byte = xsimd::select(magnitude < I(min_normal), denormal, normal);
  byte = xsimd::select(byte > I(Type::largest), I(Type::largest), byte);
  // The line above is also right for numbers far beyond the largest one, because their integer is
  // larger, too.
  byte = xsimd::select(magnitude == I(0x7F800000), I(Type::infinity), byte);
  byte = xsimd::select(magnitude > I(0x7F800000), I(Type::nan), byte);
  return same_bits<Words<Isa>>(byte | sign);
}

// True if K and V of this dtype are found as bf16 in tables (isa/byte_look_up.hpp).
template <class Isa>
concept LooksUpBytes = requires { typename Isa::ByteLookUp; };

// True if K and V of this dtype become binary16 first, which an instruction then converts. e5m2 is
// the upper byte of a binary16 number. The bits of e4m3, moved to where binary16 has its sign,
// exponent and mantissa, give 2^-8 times the number, also for denormals.
template <class Isa, pkv_dtype dtype>
inline constexpr bool through_f16 = is_fp8(dtype) && Isa::has_f16 && !LooksUpBytes<Isa>;

// The factor that a loaded element still has to be multiplied by. Kernels apply it once per sum.
template <class Isa, pkv_dtype dtype>
inline constexpr float unit = through_f16<Isa, dtype> && dtype == PKV_FP8_E4M3 ? 256.0f : 1.0f;

// Loads a vector of elements from each of two addresses, through binary16. The elements still have
// to be multiplied by unit<>.
template <class Isa, pkv_dtype dtype>
void load_two_fp8(const unsigned char* first_at, const unsigned char* second_at, Floats<Isa>* first,
                  Floats<Isa>* second) {
  using U = Words<Isa>;
  U halves = Isa::signed_bytes(first_at, second_at);
  if constexpr (dtype == PKV_FP8_E4M3) {
    halves = Isa::shift_left_halves(halves, 7);  // sign, sign, exponent, mantissa
    // The second sign bit is the top of the exponent of binary16. It becomes 0, except for NaN,
    // whose bits are all 1: there the sum carries into it, and it becomes 1.
    halves ^= Isa::add_halves(halves, U(0x00800080u)) & U(0x40004000u);
  } else {
    halves = Isa::shift_left_halves(halves, 8);
  }
  alignas(64) uint32_t bits[U::size];
  halves.store_aligned(bits);
  *first = Isa::load_f16(bits);
  *second = Isa::load_f16(bits + U::size / 2);
}

// Stores the lowest byte of each lane.
template <class Isa>
void narrow_bytes(unsigned char* to, Words<Isa> words) {
  alignas(64) uint32_t lanes[Words<Isa>::size];
  words.store_aligned(lanes);
  for (unsigned i = 0; i < Words<Isa>::size; i++) to[i] = static_cast<unsigned char>(lanes[i]);
}

}  // namespace pkv::kernels
