// All tables of kernels that this processor can run, by name.
#pragma once

#include <ostream>
#include <vector>

#include "kernels/kernels.h"

namespace pkv::kernels::test {

struct NamedTable {
  const char* name;
  const Table* kernels;
  // Stored bf16 is multiplied as it is: by q as two bf16 numbers, unless one is enough, and by
  // weights that are rounded to bf16 if the task allows it.
  bool multiplies_bf16;
};

const std::vector<NamedTable>& tables();

inline void PrintTo(const NamedTable& table, std::ostream* out) { *out << table.name; }

inline constexpr pkv_isa instruction_sets[] = {
    PKV_ISA_SCALAR,      PKV_ISA_SSE2,        PKV_ISA_AVX2, PKV_ISA_AVX512,
    PKV_ISA_AVX512_VNNI, PKV_ISA_AVX512_BF16, PKV_ISA_NEON};
inline constexpr pkv_dtype stored_dtypes[] = {PKV_F32,  PKV_F16,      PKV_BF16,    PKV_INT8,
                                              PKV_INT4, PKV_FP8_E4M3, PKV_FP8_E5M2};
inline constexpr pkv_dtype row_dtypes[] = {PKV_F32, PKV_F16, PKV_BF16};
inline constexpr pkv_layout layouts[] = {PKV_LAYOUT_PACKED, PKV_LAYOUT_PLAIN};

}  // namespace pkv::kernels::test
