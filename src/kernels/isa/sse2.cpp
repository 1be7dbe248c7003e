// The baseline of x86-64. The file has no flags of its own.
#include "kernels/instruction_sets.h"
#include "kernels/make_table.hpp"
#include "kernels/soft_f16.hpp"

namespace pkv::kernels {
namespace {
struct Sse2Arch : xsimd::sse2 {};
}  // namespace
}  // namespace pkv::kernels

namespace xsimd::types {
XSIMD_DECLARE_SIMD_REGISTER_ALIAS(pkv::kernels::Sse2Arch, sse2);
}

namespace pkv::kernels {

namespace {

struct Sse2 {
  using Arch = Sse2Arch;
  using F = xsimd::batch<float, Arch>;
  using U = xsimd::batch<uint32_t, Arch>;
  using I = xsimd::batch<int32_t, Arch>;
  static constexpr unsigned matmul_rows = 6;
  static constexpr unsigned direct_rows = 4;

  static F fma(F a, F b, F c) { return xsimd::fma(a, b, c); }
  static I dot_pairs(I sum, U a, U b) { return I(_mm_add_epi32(sum, _mm_madd_epi16(a, b))); }
  static U shift_left_halves(U x, int n) { return U(_mm_slli_epi16(x, n)); }
  static U shift_right_halves(U x, int n) { return U(_mm_srai_epi16(x, n)); }
  static U widen_bytes(const void* from) {
    int32_t four;
    __builtin_memcpy(&four, from, 4);
    const __m128i zero = _mm_setzero_si128();
    return U(_mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(four), zero), zero));
  }
  static U widen(const void* from) {
    return U(_mm_unpacklo_epi16(_mm_loadl_epi64(static_cast<const __m128i*>(from)),
                                _mm_setzero_si128()));
  }
  static void narrow(void* to, U words) {
    const __m128i sign_extended =
        _mm_srai_epi32(_mm_slli_epi32(words, 16), 16);  // so that packs does not saturate
    _mm_storel_epi64(static_cast<__m128i*>(to), _mm_packs_epi32(sign_extended, sign_extended));
  }
  static constexpr bool has_f16 = false;
  static F load_f16(const void* from) { return soft_f16_to_f32<Sse2>(widen(from)); }
  static void store_f16(void* to, F value) { narrow(to, soft_f32_to_f16<Sse2>(value)); }

  static float max_of(F x) {
    const __m128 pairs = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(pairs, _mm_shuffle_ps(pairs, pairs, 1)));
  }
  static float sum_of(F x) {
    const __m128 pairs = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(pairs, _mm_shuffle_ps(pairs, pairs, 1)));
  }
  static F sums_of(const F* x) { return xsimd::haddp(x); }

  static U load_quads(const unsigned char* const* rows, int64_t offset) {
    return U(_mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[0] + offset)));
  }
  static void transpose_quads(U (&rows)[4]) {
    const __m128i low01 = _mm_unpacklo_epi32(rows[0], rows[1]),
                  high01 = _mm_unpackhi_epi32(rows[0], rows[1]);
    const __m128i low23 = _mm_unpacklo_epi32(rows[2], rows[3]),
                  high23 = _mm_unpackhi_epi32(rows[2], rows[3]);
    rows[0] = U(_mm_unpacklo_epi64(low01, low23));
    rows[1] = U(_mm_unpackhi_epi64(low01, low23));
    rows[2] = U(_mm_unpacklo_epi64(high01, high23));
    rows[3] = U(_mm_unpackhi_epi64(high01, high23));
  }
};

}  // namespace

constexpr Table sse2_table = make_table<Sse2>(PKV_ISA_SSE2);

}  // namespace pkv::kernels
