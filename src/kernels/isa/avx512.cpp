// AVX-512 F, CD, DQ, BW and VL.
#include "kernels/isa/avx512.hpp"

#include "kernels/instruction_sets.h"
#include "kernels/isa/avx512_shared.hpp"
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

constexpr Drivers avx512_drivers = make_drivers<Avx512>();
constexpr StoredOps avx512_stored[] = {
    stored_ops<Avx512, PKV_F32>,     stored_ops<Avx512, PKV_F16>,  stored_ops<Avx512, PKV_BF16>,
    stored_ops<Avx512, PKV_INT8>,    stored_ops<Avx512, PKV_INT4>, stored_ops<Avx512, PKV_FP8_E4M3>,
    stored_ops<Avx512, PKV_FP8_E5M2>};
constexpr DtypeOps avx512_ops[] = {dtype_ops<Avx512, PKV_F32>,     dtype_ops<Avx512, PKV_F16>,
                                   dtype_ops<Avx512, PKV_BF16>,    dtype_ops<Avx512, PKV_INT8>,
                                   dtype_ops<Avx512, PKV_INT4>,    dtype_ops<Avx512, PKV_FP8_E4M3>,
                                   dtype_ops<Avx512, PKV_FP8_E5M2>};
constexpr DtypeOps avx512_plain_ops[] = {
    make_plain_ops<Avx512, PKV_F32>(),      make_plain_ops<Avx512, PKV_F16>(),
    make_plain_ops<Avx512, PKV_BF16>(),     plain_ops_of_bytes<Avx512, PKV_INT8>(),
    plain_ops_of_bytes<Avx512, PKV_Q8_0>(), plain_ops_of_bytes<Avx512, PKV_Q4_0>()};

constexpr Table avx512_table = make_table<Avx512>(PKV_ISA_AVX512);

}  // namespace pkv::kernels
