// AVX-512 with VNNI.
#include "kernels/isa/avx512_vnni.hpp"

#include "kernels/instruction_sets.h"
#include "kernels/isa/avx512_shared.hpp"

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

constexpr SetOps ops = {{avx512_ops, avx512_ops + 1, avx512_ops + 2, vnni_ops, vnni_ops + 1,
                         avx512_ops + 5, avx512_ops + 6},
                        nullptr,
                        avx512_plain_ops};
}  // namespace

constexpr StoredOps vnni_stored[] = {stored_ops<Avx512Vnni, PKV_INT8>,
                                     stored_ops<Avx512Vnni, PKV_INT4>};
constexpr DtypeOps vnni_ops[] = {dtype_ops<Avx512Vnni, PKV_INT8>, dtype_ops<Avx512Vnni, PKV_INT4>};

constexpr Table avx512_vnni_table =
    make_table<Avx512Vnni, avx512_drivers, ops>(PKV_ISA_AVX512_VNNI);

}  // namespace pkv::kernels
