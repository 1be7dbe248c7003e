// The kernels of AMX with the matrix unit emulated in C++, by the definition of its instructions in
// Intel's manual.
#include <cstdlib>
#include <cstring>

#include "emulated_dot_product.h"
#include "kernels/isa/avx512.hpp"
#include "kernels/isa/matrix_unit.hpp"

namespace pkv::kernels {
namespace {
struct EmulatedAmxArch : xsimd::avx512bw {};
}  // namespace
}  // namespace pkv::kernels

namespace xsimd::types {
XSIMD_DECLARE_SIMD_REGISTER_ALIAS(pkv::kernels::EmulatedAmxArch, avx512bw);
template <class T>
struct get_bool_simd_register<T, pkv::kernels::EmulatedAmxArch>
    : get_bool_simd_register<T, avx512bw> {};
}  // namespace xsimd::types

namespace pkv::kernels {

namespace {

class EmulatedUnit {
 public:
  class KeptConfig {
   public:
    KeptConfig() { in_use = true; }
    ~KeptConfig() { in_use = false; }
  };

  static void configure(const RegisterShapes& shapes) {
    for (unsigned r = 0; r < 8; r++) {
      registers[r] = {};
      registers[r].rows = shapes.rows[r];
      registers[r].row_bytes = shapes.row_bytes[r];
      if ((registers[r].rows == 0) != (registers[r].row_bytes == 0)) std::abort();
    }
  }
  template <int r>
  static void zero() {
    std::memset(used(r).bytes, 0, sizeof registers[r].bytes);
  }
  template <int r>
  static void load(const void* from, size_t stride) {
    Register& to = used(r);
    for (unsigned row = 0; row < to.rows; row++)
      std::memcpy(to.bytes[row], static_cast<const unsigned char*>(from) + row * stride,
                  to.row_bytes);
  }
  template <int r>
  static void store(void* to, size_t stride) {
    const Register& from = used(r);
    for (unsigned row = 0; row < from.rows; row++)
      std::memcpy(static_cast<unsigned char*>(to) + row * stride, from.bytes[row], from.row_bytes);
  }
  // TDPBF16PS: the products of even and of odd elements are added up by themselves, and denormals
  // are 0.
  template <int c, int a, int b>
  static void multiply() {
    Register& sum = used(c);
    const Register &left = used(a), &right = used(b);
    if (sum.rows != left.rows || left.row_bytes != right.rows * 4 ||
        sum.row_bytes != right.row_bytes)
      std::abort();
    for (unsigned m = 0; m < sum.rows; m++) {
      using E = EmulatedDotProduct;
      __m512 even = _mm512_setzero_ps(), odd = even;
      for (unsigned k = 0; k < right.rows; k++) {
        uint32_t pair;
        std::memcpy(&pair, left.bytes[m] + k * 4, 4);
        const __m512i x = _mm512_set1_epi32(static_cast<int>(pair)),
                      y = _mm512_loadu_si512(right.bytes[k]);
        even = E::flushed(_mm512_fmadd_ps(E::flushed(E::lower(x)), E::flushed(E::lower(y)), even));
        odd = E::flushed(_mm512_fmadd_ps(E::flushed(E::upper(x)), E::flushed(E::upper(y)), odd));
      }
      const __m512 before = _mm512_loadu_ps(sum.bytes[m]);
      _mm512_storeu_ps(sum.bytes[m],
                       E::flushed(_mm512_add_ps(before, E::flushed(_mm512_add_ps(even, odd)))));
    }
  }
  static __m256i round(__m512 x) { return EmulatedDotProduct::round(x); }

 private:
  struct Register {
    unsigned rows, row_bytes;
    unsigned char bytes[16][64];
  };
  // A register without rows must not be touched, and none without a session.
  static Register& used(int r) {
    if (!in_use || registers[r].rows == 0) std::abort();
    return registers[r];
  }
  static thread_local Register registers[8];
  static thread_local bool in_use;
};

thread_local EmulatedUnit::Register EmulatedUnit::registers[8];
thread_local bool EmulatedUnit::in_use = false;

using EmulatedAmx = Avx512Base<EmulatedAmxArch>;

constexpr SetOps ops = {{avx512_ops, avx512_ops + 1, avx512_ops + 2, avx512_ops + 3, avx512_ops + 4,
                         avx512_ops + 5, avx512_ops + 6},
                        nullptr};

}  // namespace

extern const Table emulated_amx_table;
constexpr Table emulated_amx_table =
    make_unit_table<EmulatedAmx, EmulatedUnit, ops>(PKV_ISA_AVX512_BF16);

}  // namespace pkv::kernels
