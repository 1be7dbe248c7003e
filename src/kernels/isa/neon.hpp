// Shared by the NEON files.
#pragma once

#include "kernels/vectors.hpp"

namespace pkv::kernels {

template <class XsimdArch>
struct NeonBase {
  using Arch = XsimdArch;
  using F = xsimd::batch<float, Arch>;
  using U = xsimd::batch<uint32_t, Arch>;
  using I = xsimd::batch<int32_t, Arch>;
  static constexpr unsigned matmul_rows = 12;
  static constexpr unsigned direct_rows = 4;

  static F fma(F a, F b, F c) { return F(vfmaq_f32(c, a, b)); }
  static I dot_pairs(I sum, U a, U b) {
    const int16x8_t x = vreinterpretq_s16_u32(a), y = vreinterpretq_s16_u32(b);
    const int32x4_t low = vmull_s16(vget_low_s16(x), vget_low_s16(y)),
                    high = vmull_s16(vget_high_s16(x), vget_high_s16(y));
    return I(vaddq_s32(sum, vpaddq_s32(low, high)));
  }
  static U shift_left_halves(U x, int n) {
    return U(vreinterpretq_u32_s16(
        vshlq_s16(vreinterpretq_s16_u32(x), vdupq_n_s16(static_cast<int16_t>(n)))));
  }
  static U shift_right_halves(U x, int n) {
    return U(vreinterpretq_u32_s16(
        vshlq_s16(vreinterpretq_s16_u32(x), vdupq_n_s16(static_cast<int16_t>(-n)))));
  }
  static U widen_bytes(const void* from) {
    uint32_t four;
    __builtin_memcpy(&four, from, 4);
    return U(vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(four)))));
  }
  static U widen(const void* from) { return U(vmovl_u16(load_four(from))); }
  static U signed_bytes(const void* a, const void* b) {
    uint32_t low, high;
    __builtin_memcpy(&low, a, 4);
    __builtin_memcpy(&high, b, 4);
    return U(vreinterpretq_u32_s16(vmovl_s8(vcreate_s8(low | uint64_t{high} << 32))));
  }
  static U add_halves(U a, U b) {
    return U(vreinterpretq_u32_u16(vaddq_u16(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b))));
  }
  static void narrow(void* to, U words) { store_four(to, vmovn_u32(words)); }
  static constexpr bool has_f16 = true;
  static F load_f16(const void* from) {
    return F(vcvt_f32_f16(vreinterpret_f16_u16(load_four(from))));
  }
  static void store_f16(void* to, F value) {
    store_four(to, vreinterpret_u16_f16(vcvt_f16_f32(value)));
  }

  static float max_of(F x) { return vmaxvq_f32(x); }
  static float sum_of(F x) { return vaddvq_f32(x); }
  static F sums_of(const F* x) { return xsimd::haddp(x); }

  static U load_quads(const unsigned char* const* rows, int64_t offset) {
    return U(vreinterpretq_u32_u8(vld1q_u8(rows[0] + offset)));
  }
  static void transpose_quads(U (&rows)[4]) {
    const uint64x2_t low01 = vreinterpretq_u64_u32(vzip1q_u32(rows[0], rows[1])),
                     high01 = vreinterpretq_u64_u32(vzip2q_u32(rows[0], rows[1]));
    const uint64x2_t low23 = vreinterpretq_u64_u32(vzip1q_u32(rows[2], rows[3])),
                     high23 = vreinterpretq_u64_u32(vzip2q_u32(rows[2], rows[3]));
    rows[0] = U(vreinterpretq_u32_u64(vzip1q_u64(low01, low23)));
    rows[1] = U(vreinterpretq_u32_u64(vzip2q_u64(low01, low23)));
    rows[2] = U(vreinterpretq_u32_u64(vzip1q_u64(high01, high23)));
    rows[3] = U(vreinterpretq_u32_u64(vzip2q_u64(high01, high23)));
  }

 private:
  static uint16x4_t load_four(const void* from) {
    return vreinterpret_u16_u8(vld1_u8(static_cast<const uint8_t*>(from)));
  }
  static void store_four(void* to, uint16x4_t words) {
    vst1_u8(static_cast<uint8_t*>(to), vreinterpret_u8_u16(words));
  }
};

}  // namespace pkv::kernels
