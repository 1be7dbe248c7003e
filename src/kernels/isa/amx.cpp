// AVX-512 with VBMI and VNNI, and the matrix unit of AMX for many rows.
#include <stdint.h>

#include "kernels/instruction_sets.h"
#include "kernels/isa/bf16_instructions.hpp"
#include "kernels/isa/byte_instructions.hpp"
#include "kernels/isa/byte_look_up.hpp"
#include "kernels/isa/matrix_unit.hpp"

namespace pkv::kernels {
namespace {
struct AmxArch : xsimd::avx512bw {};
}  // namespace
}  // namespace pkv::kernels

namespace xsimd::types {
XSIMD_DECLARE_SIMD_REGISTER_ALIAS(pkv::kernels::AmxArch, avx512bw);
template <class T>
struct get_bool_simd_register<T, pkv::kernels::AmxArch> : get_bool_simd_register<T, avx512bw> {};
}  // namespace xsimd::types

namespace pkv::kernels {

namespace {

// The operand of ldtilecfg.
struct alignas(64) TileConfig {
  uint8_t palette = 0, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// The instructions are written as assembly, because GCC 12's intrinsics do not accept a template
// parameter as a register number.
struct Amx {
  // If the thread had a configuration, it is restored at the end; otherwise the unit returns to its
  // initial state. Callees may change tile registers, so their contents are not saved.
  class KeptConfig {
   public:
    KeptConfig() { __asm__ volatile("sttilecfg %0" : "=m"(before_)); }
    ~KeptConfig() {
      if (before_.palette != 0)
        load(before_);
      else
        __asm__ volatile("tilerelease");
    }
    KeptConfig(const KeptConfig&) = delete;
    KeptConfig& operator=(const KeptConfig&) = delete;

   private:
    TileConfig before_;
  };

  static void configure(const RegisterShapes& shapes) {
    TileConfig config;
    config.palette = 1;
    for (unsigned r = 0; r < 8; r++) {
      config.rows[r] = shapes.rows[r];
      config.row_bytes[r] = shapes.row_bytes[r];
    }
    load(config);
  }

  template <int r>
  static void zero() {
    __asm__ volatile("tilezero %%tmm%c0" ::"i"(r));
  }
  template <int r>
  static void load(const void* from, size_t stride) {
    __asm__ volatile("tileloadd (%0,%1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(r) : "memory");
  }
  template <int r>
  static void store(void* to, size_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1)" ::"r"(to), "r"(stride), "i"(r) : "memory");
  }
  template <int c, int a, int b>
  static void multiply() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b));
  }
  static __m256i round(__m512 x) { return Bf16Instructions::round(x); }

 private:
  static void load(const TileConfig& config) { __asm__ volatile("ldtilecfg %0" ::"m"(config)); }
};

// The bf16 dot product of AVX-512 is not used, because CPUs with AMX do half as many products with
// it as with fp32 multiply-adds.
using Isa = WithByteLookUp<Avx512Base<AmxArch>, ByteInstructions>;

constexpr SetOps ops = {{avx512_ops, avx512_ops + 1, avx512_ops + 2, vnni_ops, vnni_ops + 1,
                         &dtype_ops<Isa, PKV_FP8_E4M3>, &dtype_ops<Isa, PKV_FP8_E5M2>},
                        nullptr,
                        avx512_plain_ops};

}  // namespace

constexpr Table amx_table = make_unit_table<Isa, Amx, ops>(PKV_ISA_AMX);

}  // namespace pkv::kernels
