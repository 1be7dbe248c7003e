// AVX2 with AVX-VNNI.
#include "kernels/instruction_sets.h"
#include "kernels/isa/avx2.hpp"
#include "kernels/isa/avx2_shared.hpp"
#include "kernels/isa/vnni_int4.hpp"
#include "kernels/isa/vnni_int8.hpp"

namespace pkv::kernels {
namespace {
struct AvxVnniArch : xsimd::fma3<xsimd::avx2> {};
}  // namespace
}  // namespace pkv::kernels

namespace xsimd::types {
XSIMD_DECLARE_SIMD_REGISTER_ALIAS(pkv::kernels::AvxVnniArch, fma3<avx2>);
}

namespace pkv::kernels {

namespace {

struct AvxVnni : Avx2Base<AvxVnniArch> {
  static constexpr unsigned byte_sums = 4;

  // Both are assembly, because GCC 12 copies the sum before and after the intrinsic.
  static I dot_pairs(I sum, U a, U b) {
    __m256i total = sum;
    __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(total) : "x"(__m256i(a)), "x"(__m256i(b)));
    return I(total);
  }
  static I dot_bytes(I sum, U a, U b) {
    __m256i total = sum;
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(total) : "x"(__m256i(a)), "x"(__m256i(b)));
    return I(total);
  }
  static void narrow_ordered(void* to, U words, __m128i order) {
    _mm_storeu_si128(static_cast<__m128i*>(to), _mm_shuffle_epi8(lower_halves(words), order));
  }
};

constexpr DtypeOps vnni_ops[] = {dtype_ops<AvxVnni, PKV_INT8>, dtype_ops<AvxVnni, PKV_INT4>};
constexpr SetOps ops = {
    {avx2_ops, avx2_ops + 1, avx2_ops + 2, vnni_ops, vnni_ops + 1, avx2_ops + 5, avx2_ops + 6},
    nullptr,
    avx2_plain_ops};

}  // namespace

constexpr Table avx_vnni_table = make_table<AvxVnni, avx2_drivers, ops>(PKV_ISA_AVX_VNNI);

}  // namespace pkv::kernels
