// The values of the enums that tests go through, and the first values that no header has. Each list
// has all values of its enum; tests/kernels/tables.h asserts that.
#pragma once

#include <pagedkv/cache.h>

#include <iterator>

namespace pkv::test {

inline constexpr pkv_dtype stored_dtypes[] = {PKV_F32,  PKV_F16,      PKV_BF16,    PKV_INT8,
                                              PKV_INT4, PKV_FP8_E4M3, PKV_FP8_E5M2};
inline constexpr pkv_dtype read_dtypes[] = {PKV_Q8_0, PKV_Q4_0};  // only read, and not stored
inline constexpr auto unknown_dtype =
    static_cast<pkv_dtype>(PKV_F32 + std::size(stored_dtypes) + std::size(read_dtypes));

// The best one that a machine can run comes last.
inline constexpr pkv_isa instruction_sets[] = {
    PKV_ISA_SCALAR, PKV_ISA_SSE2,        PKV_ISA_AVX2,        PKV_ISA_AVX_VNNI,
    PKV_ISA_AVX512, PKV_ISA_AVX512_VNNI, PKV_ISA_AVX512_BF16, PKV_ISA_AMX,
    PKV_ISA_NEON,   PKV_ISA_NEON_DOT,    PKV_ISA_NEON_BF16};
inline constexpr auto unknown_isa =
    static_cast<pkv_isa>(PKV_ISA_SCALAR + std::size(instruction_sets));

inline const char* name_of(pkv_dtype dtype) {
  switch (dtype) {
    case PKV_F32:
      return "f32";
    case PKV_F16:
      return "f16";
    case PKV_BF16:
      return "bf16";
    case PKV_INT8:
      return "int8";
    case PKV_INT4:
      return "int4";
    case PKV_FP8_E4M3:
      return "fp8_e4m3";
    case PKV_FP8_E5M2:
      return "fp8_e5m2";
    case PKV_Q8_0:
      return "q8_0";
    case PKV_Q4_0:
      return "q4_0";
  }
  return "unknown";
}

}  // namespace pkv::test
