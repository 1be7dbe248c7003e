// AVX-512 with BF16, VBMI and VNNI.
#include "kernels/isa/avx512_bf16.hpp"

#include "kernels/instruction_sets.h"
#include "kernels/isa/avx512_shared.hpp"
#include "kernels/isa/avx512_vnni.hpp"
#include "kernels/isa/bf16_instructions.hpp"
#include "kernels/isa/byte_instructions.hpp"

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

constexpr SetOps zen4_ops = {
    {avx512_ops, avx512_ops + 1, &dtype_ops<Avx512Bf16, PKV_BF16>, vnni_ops, vnni_ops + 1,
     &dtype_ops<Avx512Bf16, PKV_FP8_E4M3>, &dtype_ops<Avx512Bf16, PKV_FP8_E5M2>},
    Avx512Bf16::lead_in_order,
    avx512_plain_ops};

// They differ from those of Zen 4 in what they prefetch.
using Zen5 = ForZen5<Avx512Bf16>;
constexpr DtypeOps zen5_dtypes[] = {
    make_ops<Zen5, PKV_F32>(avx512_stored),
    make_ops<Zen5, PKV_F16>(avx512_stored + 1),
    make_ops<Zen5, PKV_BF16>(&stored_ops<Avx512Bf16, PKV_BF16>),
    make_ops<Zen5, PKV_INT8>(vnni_stored),
    make_ops<Zen5, PKV_INT4>(vnni_stored + 1),
    make_ops<Zen5, PKV_FP8_E4M3>(&stored_ops<Avx512Bf16, PKV_FP8_E4M3>),
    make_ops<Zen5, PKV_FP8_E5M2>(&stored_ops<Avx512Bf16, PKV_FP8_E5M2>)};
constexpr SetOps zen5_ops = {{zen5_dtypes, zen5_dtypes + 1, zen5_dtypes + 2, zen5_dtypes + 3,
                              zen5_dtypes + 4, zen5_dtypes + 5, zen5_dtypes + 6},
                             Zen5::lead_in_order,
                             avx512_plain_ops};

}  // namespace

constexpr Table avx512_bf16_table =
    make_table<Avx512Bf16, avx512_drivers, zen4_ops>(PKV_ISA_AVX512_BF16);
constexpr Table zen5_table = make_table<Zen5, avx512_drivers, zen5_ops>(PKV_ISA_AVX512_BF16);

}  // namespace pkv::kernels
