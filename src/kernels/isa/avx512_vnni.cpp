// AVX-512 with VNNI.
#include "kernels/isa/avx512_vnni.hpp"

#include "kernels/instruction_sets.h"
#include "kernels/make_table.hpp"

namespace pkv::kernels {
namespace {
struct Avx512VnniArch : xsimd::avx512bw {};
}  // namespace
}  // namespace pkv::kernels

namespace xsimd::types {
XSIMD_DECLARE_SIMD_REGISTER_ALIAS(pkv::kernels::Avx512VnniArch, avx512bw);
template <class T>
struct get_bool_simd_register<T, pkv::kernels::Avx512VnniArch>
    : get_bool_simd_register<T, avx512bw> {};
}  // namespace xsimd::types

namespace pkv::kernels {

namespace {
using Avx512Vnni = WithVnni<Avx512Base<Avx512VnniArch>>;
}

constexpr Table avx512_vnni_table = make_table<Avx512Vnni>(PKV_ISA_AVX512_VNNI);

}  // namespace pkv::kernels
