// AVX-512 F, CD, DQ, BW and VL.
#include "kernels/isa/avx512.hpp"

#include "kernels/table.hpp"
#include "kernels/tables.h"

namespace pkv {
namespace {
struct Avx512Arch : xsimd::avx512bw {};
}  // namespace
}  // namespace pkv

namespace xsimd::types {
XSIMD_DECLARE_SIMD_REGISTER_ALIAS(pkv::Avx512Arch, avx512bw);
template <class T>
struct get_bool_simd_register<T, pkv::Avx512Arch> : get_bool_simd_register<T, avx512bw> {};
}  // namespace xsimd::types

namespace pkv {

namespace {
using Avx512 = Avx512Base<Avx512Arch>;
}

constexpr Kernels avx512_kernels = make_table<Avx512>(PKV_ISA_AVX512);

}  // namespace pkv
