// AVX2 with FMA and F16C.
#include "kernels/isa/avx2.hpp"

#include "kernels/instruction_sets.h"
#include "kernels/isa/avx2_shared.hpp"
#include "kernels/make_table.hpp"

namespace pkv::kernels {
namespace {
struct Avx2Arch : xsimd::fma3<xsimd::avx2> {};
}  // namespace
}  // namespace pkv::kernels

namespace xsimd::types {
XSIMD_DECLARE_SIMD_REGISTER_ALIAS(pkv::kernels::Avx2Arch, fma3<avx2>);
}

namespace pkv::kernels {

namespace {
using Avx2 = Avx2Base<Avx2Arch>;
}

constexpr Drivers avx2_drivers = make_drivers<Avx2>();
constexpr DtypeOps avx2_ops[] = {dtype_ops<Avx2, PKV_F32>,     dtype_ops<Avx2, PKV_F16>,
                                 dtype_ops<Avx2, PKV_BF16>,    dtype_ops<Avx2, PKV_INT8>,
                                 dtype_ops<Avx2, PKV_INT4>,    dtype_ops<Avx2, PKV_FP8_E4M3>,
                                 dtype_ops<Avx2, PKV_FP8_E5M2>};
constexpr DtypeOps avx2_plain_ops[] = {
    make_plain_ops<Avx2, PKV_F32>(),      make_plain_ops<Avx2, PKV_F16>(),
    make_plain_ops<Avx2, PKV_BF16>(),     plain_ops_of_bytes<Avx2, PKV_INT8>(),
    plain_ops_of_bytes<Avx2, PKV_Q8_0>(), plain_ops_of_bytes<Avx2, PKV_Q4_0>()};

constexpr Table avx2_table = make_table<Avx2>(PKV_ISA_AVX2);

}  // namespace pkv::kernels
