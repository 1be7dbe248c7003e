// AVX-512 with VNNI.
#include "kernels/isa/avx512_vnni.hpp"

#include "kernels/table.hpp"
#include "kernels/tables.h"

namespace pkv {
namespace {
struct Avx512VnniArch : xsimd::avx512bw {};
}  // namespace
}  // namespace pkv

namespace xsimd::types {
XSIMD_DECLARE_SIMD_REGISTER_ALIAS(pkv::Avx512VnniArch, avx512bw);
template <class T>
struct get_bool_simd_register<T, pkv::Avx512VnniArch> : get_bool_simd_register<T, avx512bw> {};
}  // namespace xsimd::types

namespace pkv {

namespace {
using Avx512Vnni = WithVnni<Avx512Base<Avx512VnniArch>>;
}

constexpr Kernels avx512_vnni_kernels = make_table<Avx512Vnni>(PKV_ISA_AVX512_VNNI);

}  // namespace pkv
