// AVX-512 with BF16, VBMI and VNNI.
#include "kernels/isa/avx512_bf16.hpp"

#include "kernels/instruction_sets.h"
#include "kernels/isa/avx512_vnni.hpp"
#include "kernels/isa/bf16_instructions.hpp"
#include "kernels/isa/byte_instructions.hpp"
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

using Base = WithByteLookUp<WithVnni<Avx512Base<Avx512Bf16Arch>>, ByteInstructions>;
using Avx512Bf16 = Avx512DotBf16<Base, Bf16Instructions>;

}  // namespace

constexpr Table avx512_bf16_table = make_table<Avx512Bf16>(PKV_ISA_AVX512_BF16);
constexpr Table zen5_table = make_table<Avx512Bf16, ForZen5<Avx512Bf16>>(PKV_ISA_AVX512_BF16);

}  // namespace pkv::kernels
