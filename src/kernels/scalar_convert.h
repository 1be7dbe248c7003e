// Conversions between the floating-point dtypes, one value at a time and by integer arithmetic. The
// vector kernels must give the same bits. Numbers are rounded to nearest even; NaN becomes a quiet
// NaN.
#pragma once

#include <pagedkv/common.h>

#include <bit>
#include <cstring>

namespace pkv::kernels::scalar {

inline float f16_to_f32(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = half >> 10 & 0x1Fu, mantissa = half & 0x3FFu;
  if (exponent == 0) {  // zero or denormal: mantissa * 2^-24, exact in fp32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) {
    const uint32_t quiet = mantissa != 0 ? 0x400000u : 0;
    return std::bit_cast<float>(sign | 0x7F800000u | quiet | mantissa << 13);
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

// bits / 2^shift, rounded to nearest even.
inline uint32_t shift_right_rounded(uint32_t bits, uint32_t shift) {
  const uint32_t quotient = bits >> shift, rest = bits & ((1u << shift) - 1),
                 half = 1u << (shift - 1);
  return quotient + (rest > half || (rest == half && (quotient & 1) != 0));
}

inline uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7FFFFFFFu;
  const uint32_t sign = bits >> 16 & 0x8000u;
  if (magnitude > 0x7F800000u)
    return static_cast<uint16_t>(sign | 0x7E00u | (magnitude >> 13 & 0x3FFu));
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7C00u);  // 65536 and beyond
  if (magnitude >= 0x38800000u)  // normal; rounding may carry into the exponent, up to infinity
    return static_cast<uint16_t>(sign | shift_right_rounded(magnitude - 0x38000000u, 13));
  const uint32_t exponent = magnitude >> 23;
  if (exponent < 102) return static_cast<uint16_t>(sign);  // below half of the smallest denormal
  return static_cast<uint16_t>(
      sign | shift_right_rounded((magnitude & 0x7FFFFFu) | 0x800000u, 126 - exponent));
}

inline float bf16_to_f32(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

inline uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

// The 8-bit dtypes. A number that is too large becomes the largest finite one. e4m3 has no
// infinity, so infinities become NaN there.
inline float fp8_to_f32(pkv_dtype dtype, uint8_t byte) {
  const uint32_t mantissa_bits = dtype == PKV_FP8_E4M3 ? 3 : 2,
                 bias = dtype == PKV_FP8_E4M3 ? 7 : 15;
  const uint32_t magnitude = byte & 0x7Fu, sign = static_cast<uint32_t>(byte & 0x80u) << 24;
  if (dtype == PKV_FP8_E4M3 ? magnitude == 0x7F : magnitude > 0x7C)
    return std::bit_cast<float>(sign | 0x7FC00000u);
  if (dtype == PKV_FP8_E5M2 && magnitude == 0x7C) return std::bit_cast<float>(sign | 0x7F800000u);
  if (magnitude >> mantissa_bits == 0) {
    const float unit = dtype == PKV_FP8_E4M3 ? 0x1p-9f : 0x1p-16f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(static_cast<float>(magnitude) * unit) |
                                sign);
  }
  return std::bit_cast<float>(sign | ((magnitude << (23 - mantissa_bits)) + ((127 - bias) << 23)));
}

inline uint8_t f32_to_fp8(pkv_dtype dtype, float value) {
  const uint32_t mantissa_bits = dtype == PKV_FP8_E4M3 ? 3 : 2,
                 bias = dtype == PKV_FP8_E4M3 ? 7 : 15;
  const uint32_t largest = dtype == PKV_FP8_E4M3 ? 0x7E : 0x7B,
                 infinity = dtype == PKV_FP8_E4M3 ? 0x7F : 0x7C;
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7FFFFFFFu,
                 sign = bits >> 24 & 0x80u;
  if (magnitude > 0x7F800000u) return static_cast<uint8_t>(sign | 0x7Fu);
  if (magnitude == 0x7F800000u) return static_cast<uint8_t>(sign | infinity);
  const uint32_t exponent = magnitude >> 23, min_normal = 128 - bias;
  uint32_t byte = 0;
  if (exponent >= min_normal) {
    byte = shift_right_rounded(magnitude - ((127 - bias) << 23), 23 - mantissa_bits);
  } else if (exponent + mantissa_bits + 1 >=
             min_normal) {  // not below half of the smallest denormal
    byte = shift_right_rounded((magnitude & 0x7FFFFFu) | 0x800000u,
                               23 - mantissa_bits + min_normal - exponent);
  }
  return static_cast<uint8_t>(sign | (byte > largest ? largest : byte));
}

inline float load(pkv_dtype dtype, const unsigned char* from) {
  if (dtype == PKV_F32) {
    float value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  if (dtype == PKV_FP8_E4M3 || dtype == PKV_FP8_E5M2) return fp8_to_f32(dtype, *from);
  uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return dtype == PKV_F16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

inline void store(pkv_dtype dtype, unsigned char* to, float value) {
  if (dtype == PKV_F32) {
    std::memcpy(to, &value, sizeof value);
    return;
  }
  if (dtype == PKV_FP8_E4M3 || dtype == PKV_FP8_E5M2) {
    *to = f32_to_fp8(dtype, value);
    return;
  }
  const uint16_t bits = dtype == PKV_F16 ? f32_to_f16(value) : f32_to_bf16(value);
  std::memcpy(to, &bits, sizeof bits);
}

// Converts one element. Its bits are kept if the dtype is the same.
inline void convert(pkv_dtype from_dtype, const unsigned char* from, pkv_dtype to_dtype,
                    unsigned char* to) {
  if (from_dtype == to_dtype)
    std::memcpy(to, from, to_dtype == PKV_F32 ? 4 : to_dtype <= PKV_BF16 ? 2 : 1);
  else
    store(to_dtype, to, load(from_dtype, from));
}

}  // namespace pkv::kernels::scalar
