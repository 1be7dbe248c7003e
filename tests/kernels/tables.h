// Every table of kernels that this processor can run, by name.
#pragma once

#include <ostream>
#include <vector>

#include "kernels/kernels.h"

namespace pkv::test {

struct NamedTable {
  const char* name;
  const Kernels* kernels;
  bool splits_queries;  // q as two bf16 numbers, for stored bf16
};

const std::vector<NamedTable>& tables();

inline void PrintTo(const NamedTable& table, std::ostream* out) { *out << table.name; }

inline const KvKernels& of(const Kernels& kernels, pkv_layout layout, pkv_dtype dtype) {
  return layout == PKV_LAYOUT_PACKED ? kernels.packed[dtype_index(dtype)] : kernels.plain[dtype_index(dtype)];
}

inline constexpr pkv_dtype dtypes[] = {PKV_F32, PKV_F16, PKV_BF16};
inline constexpr pkv_layout layouts[] = {PKV_LAYOUT_PACKED, PKV_LAYOUT_PLAIN};

}  // namespace pkv::test
