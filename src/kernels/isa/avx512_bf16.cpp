// AVX-512 with BF16 and VNNI.
#include "kernels/isa/avx512_bf16.hpp"

#include "kernels/instruction_sets.h"
#include "kernels/isa/avx512_vnni.hpp"
#include "kernels/make_table.hpp"

namespace pkv::kernels {
namespace {
struct Avx512Bf16Arch : xsimd::avx512bw {};
}  // namespace
}  // namespace pkv::kernels

namespace xsimd::types {
XSIMD_DECLARE_SIMD_REGISTER_ALIAS(pkv::kernels::Avx512Bf16Arch, avx512bw);
template <class T>
struct get_bool_simd_register<T, pkv::kernels::Avx512Bf16Arch>
    : get_bool_simd_register<T, avx512bw> {};
}  // namespace xsimd::types

namespace pkv::kernels {

namespace {

struct DotProductInstruction {
  // sum + a.even * b.even + a.odd * b.odd, for the pair of bf16 numbers in each lane.
  static __m512 dot(__m512 sum, __m512i a, __m512i b) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
  }
  // Rounds to the nearest bf16 numbers.
  static __m256i round(__m512 x) { return (__m256i)_mm512_cvtneps_pbh(x); }
};

using Avx512Bf16 = Avx512DotBf16<WithVnni<Avx512Base<Avx512Bf16Arch>>, DotProductInstruction>;

}  // namespace

constexpr Table avx512_bf16_table = make_table<Avx512Bf16>(PKV_ISA_AVX512_BF16);

}  // namespace pkv::kernels
