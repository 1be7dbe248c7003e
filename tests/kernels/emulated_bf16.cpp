// The kernels of AVX512_BF16 with their dot product computed by instructions of AVX-512 F.
#include "emulated_dot_product.h"
#include "kernels/isa/avx512_bf16.hpp"
#include "kernels/make_table.hpp"

namespace pkv::kernels {
namespace {
struct EmulatedArch : xsimd::avx512bw {};
}  // namespace
}  // namespace pkv::kernels

namespace xsimd::types {
XSIMD_DECLARE_SIMD_REGISTER_ALIAS(pkv::kernels::EmulatedArch, avx512bw);
template <class T>
struct get_bool_simd_register<T, pkv::kernels::EmulatedArch> : get_bool_simd_register<T, avx512bw> {
};
}  // namespace xsimd::types

namespace pkv::kernels {

namespace {

using Emulated = Avx512DotBf16<Avx512Base<EmulatedArch>, EmulatedDotProduct>;

}  // namespace

extern const Table emulated_bf16_table;
constexpr Table emulated_bf16_table = make_table<Emulated>(PKV_ISA_AVX512_BF16);

}  // namespace pkv::kernels
