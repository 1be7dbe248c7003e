// Rows of int8 and int4 with their scales, as tile_layout.h describes them. The row of a token and
// head is quantised once, when it is stored; the scale follows from the largest of the elements
// that share it. If one of these is a NaN or an infinity, all of them become NaN. If all are below
// 1e-30 in magnitude, all become 0.
#pragma once

#include "kernels/convert.hpp"
#include "kernels/tile_layout.h"

namespace pkv::kernels {

inline constexpr float min_quantised = 1e-30f;

// Returns the largest magnitude of n elements; NaN if one of them is not finite.
template <class Isa>
float largest_magnitude(const float* row, uint32_t n) {
  Floats<Isa> max_magnitude(0.0f), poison(0.0f);
  for (uint32_t i = 0; i < n; i += Floats<Isa>::size) {
    const Floats<Isa> x = Floats<Isa>::load_unaligned(row + i);
    max_magnitude = xsimd::max(max_magnitude, xsimd::abs(x));
    poison += x - x;  // 0, or NaN
  }
  const float sum = Isa::sum_of(poison);
  return sum == 0.0f ? Isa::max_of(max_magnitude) : __builtin_nanf("");
}

// Replaces elements that are not finite by 0. The scale makes them NaN anyway; without this, their
// bytes would depend on the instruction set.
template <class Isa>
Floats<Isa> finite_or_zero(Floats<Isa> x) {
  return xsimd::select(x - x == Floats<Isa>(0.0f), x, Floats<Isa>(0.0f));
}

// Rounds to the nearest integer, ties to even. |x| < 2^22.
template <class Isa>
Ints<Isa> rounded(Floats<Isa> x) {
  const Floats<Isa> magic(0x1.8p23f);
  return same_bits<Ints<Isa>>(x + magic) - same_bits<Ints<Isa>>(magic);
}

template <class Isa>
Ints<Isa> clamped(Ints<Isa> x, int32_t low, int32_t high) {
  return xsimd::min(xsimd::max(x, Ints<Isa>(low)), Ints<Isa>(high));
}

// Field i of each word: `bits` bits, in two's complement.
template <class Isa, int bits>
Ints<Isa> signed_field(Words<Isa> words, unsigned i) {
  return same_bits<Ints<Isa>>(words << (32 - bits - bits * static_cast<int>(i))) >> (32 - bits);
}

static inline float bf16_to_f32(uint16_t bits) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
}

// Returns the smallest bf16 number that is not below x, for x >= 0; NaN for NaN.
static inline uint16_t bf16_not_below(float x) {
  if (!(x == x)) return 0x7FC0;
  return static_cast<uint16_t>((__builtin_bit_cast(uint32_t, x) + 0xFFFFu) >> 16);
}

template <class Isa>
void quantise_int8(const float* row, uint32_t dim, unsigned char* to) {
  const float largest = largest_magnitude<Isa>(row, dim);
  const bool zero = largest < min_quantised;
  const float scale = zero ? 0.0f : largest / 127.0f;
  const Floats<Isa> inverse(largest >= min_quantised ? 127.0f / largest : 0.0f);
  for (uint32_t d = 0; d < dim; d += Floats<Isa>::size) {
    const Ints<Isa> x = clamped<Isa>(
        rounded<Isa>(finite_or_zero<Isa>(Floats<Isa>::load_unaligned(row + d)) * inverse), -127,
        127);
    narrow_bytes<Isa>(to + d, same_bits<Words<Isa>>(x));
  }
  __builtin_memcpy(to + dim, &scale, 4);
}

template <class Isa>
void dequantise_int8(const unsigned char* from, uint32_t dim, float* row) {
  float scale;
  __builtin_memcpy(&scale, from + dim, 4);
  for (uint32_t d = 0; d < dim; d += Floats<Isa>::size) {
    const Floats<Isa> x = xsimd::to_float(signed_field<Isa, 8>(Isa::widen_bytes(from + d), 0));
    (x * Floats<Isa>(scale)).store_unaligned(row + d);
  }
}

template <class Isa>
void quantise_int4(const float* row, uint32_t dim, unsigned char* to) {
  unsigned char* scales = to + dim / 2;
  for (uint32_t begin = 0; begin < dim; begin += int4_group_size, scales += 2) {
    const uint32_t n = dim - begin < int4_group_size ? dim - begin : int4_group_size;
    const float largest = largest_magnitude<Isa>(row + begin, n);
    const uint16_t scale = largest < min_quantised ? uint16_t{0} : bf16_not_below(largest / 7.0f);
    const Floats<Isa> inverse(largest >= min_quantised ? 1.0f / bf16_to_f32(scale) : 0.0f);
    alignas(64) int32_t nibbles[int4_group_size];
    for (uint32_t d = 0; d < n; d += Floats<Isa>::size) {
      const Floats<Isa> x =
          finite_or_zero<Isa>(Floats<Isa>::load_unaligned(row + begin + d)) * inverse;
      clamped<Isa>(rounded<Isa>(x), -7, 7).store_aligned(nibbles + d);
    }
    for (uint32_t d = 0; d < n; d += 2)
      to[(begin + d) / 2] = static_cast<unsigned char>((nibbles[d] & 15) | nibbles[d + 1] << 4);
    __builtin_memcpy(scales, &scale, 2);
  }
}

template <class Isa>
void dequantise_int4(const unsigned char* from, uint32_t dim, float* row) {
  for (uint32_t d = 0; d < dim; d++) {
    uint16_t scale;
    __builtin_memcpy(&scale, from + dim / 2 + d / int4_group_size * 2, 2);
    const int nibble = static_cast<int8_t>(from[d / 2] << (d % 2 != 0 ? 0 : 4)) >> 4;
    row[d] = static_cast<float>(nibble) * bf16_to_f32(scale);
  }
}

// Converts a caller's row to a stored row.
template <class Isa, pkv_dtype dtype>
void encode_row(pkv_dtype from_dtype, const unsigned char* from, uint32_t dim, unsigned char* to) {
  if constexpr (dtype == PKV_INT8 || dtype == PKV_INT4) {
    alignas(64) float row[max_dim];
    convert_from_rows<Isa, PKV_F32>(from_dtype, from, reinterpret_cast<unsigned char*>(row), dim);
    dtype == PKV_INT8 ? quantise_int8<Isa>(row, dim, to) : quantise_int4<Isa>(row, dim, to);
  } else {
    convert_from_rows<Isa, dtype>(from_dtype, from, to, dim);
  }
}

// Converts a stored row to a caller's row.
template <class Isa, pkv_dtype dtype>
void decode_row(const unsigned char* from, uint32_t dim, pkv_dtype to_dtype, unsigned char* to) {
  if constexpr (dtype == PKV_INT8 || dtype == PKV_INT4) {
    alignas(64) float row[max_dim];
    dtype == PKV_INT8 ? dequantise_int8<Isa>(from, dim, row) : dequantise_int4<Isa>(from, dim, row);
    convert_to_rows<Isa, PKV_F32>(reinterpret_cast<const unsigned char*>(row), to_dtype, to, dim);
  } else {
    convert_to_rows<Isa, dtype>(from, to_dtype, to, dim);
  }
}

}  // namespace pkv::kernels
