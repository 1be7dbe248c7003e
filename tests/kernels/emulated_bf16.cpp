// The kernels of AVX512_BF16 with their dot product computed by instructions of AVX-512 F, and the
// instructions of AVX512_VBMI in C++.
#include "emulated_dot_product.h"
#include "kernels/isa/avx512_bf16.hpp"
#include "kernels/isa/avx512_shared.hpp"

namespace pkv::kernels {
namespace {
struct EmulatedArch : xsimd::avx512bw {};
}  // namespace
}  // namespace pkv::kernels

namespace xsimd::types {
XSIMD_DECLARE_SIMD_REGISTER_ALIAS(pkv::kernels::EmulatedArch, avx512bw);
template <class T>
struct get_bool_simd_register<T, pkv::kernels::EmulatedArch> : get_bool_simd_register<T, avx512bw> {
};
}  // namespace xsimd::types

namespace pkv::kernels {

namespace {

struct EmulatedBytes {
  struct Vector {
    unsigned char byte[64];
  };
  static Vector bytes(__m512i x) { return __builtin_bit_cast(Vector, x); }

  static __m512i permute(__m512i order, __m512i x) { return look_up(order, x, x); }
  static __m512i look_up(__m512i index, __m512i lower_table, __m512i upper_table) {
    const Vector places = bytes(index), tables[] = {bytes(lower_table), bytes(upper_table)};
    Vector found{};
    for (int i = 0; i < 64; i++)
      found.byte[i] = tables[places.byte[i] >> 6 & 1].byte[places.byte[i] & 63];
    return __builtin_bit_cast(__m512i, found);
  }
};

using Emulated =
    Avx512DotBf16<WithByteLookUp<Avx512Base<EmulatedArch>, EmulatedBytes>, EmulatedDotProduct>;

constexpr SetOps ops = {
    {avx512_ops, avx512_ops + 1, &dtype_ops<Emulated, PKV_BF16>, avx512_ops + 3, avx512_ops + 4,
     &dtype_ops<Emulated, PKV_FP8_E4M3>, &dtype_ops<Emulated, PKV_FP8_E5M2>},
    Emulated::lead_in_order};

}  // namespace

extern const Table emulated_bf16_table;
constexpr Table emulated_bf16_table =
    make_table<Emulated, avx512_drivers, ops>(PKV_ISA_AVX512_BF16);

}  // namespace pkv::kernels
