// AVX-512 F, CD, DQ, BW and VL.
#include "kernels/isa/avx512.hpp"

#include "kernels/instruction_sets.h"
#include "kernels/make_table.hpp"

namespace pkv::kernels {
namespace {
struct Avx512Arch : xsimd::avx512bw {};
}  // namespace
}  // namespace pkv::kernels

namespace xsimd::types {
XSIMD_DECLARE_SIMD_REGISTER_ALIAS(pkv::kernels::Avx512Arch, avx512bw);
template <class T>
struct get_bool_simd_register<T, pkv::kernels::Avx512Arch> : get_bool_simd_register<T, avx512bw> {};
}  // namespace xsimd::types

namespace pkv::kernels {

namespace {
using Avx512 = Avx512Base<Avx512Arch>;
}

constexpr Table avx512_table = make_table<Avx512>(PKV_ISA_AVX512);

}  // namespace pkv::kernels
