// All tables of kernels that this processor can run, by name.
#pragma once

#include <ostream>
#include <vector>

#include "../support/enums.h"
#include "kernels/kernels.h"

namespace pkv::kernels::test {

struct NamedTable {
  const char* name;
  const Table* kernels;
  // Stored bf16 is multiplied as it is: by q as two bf16 numbers, unless one is enough, and by
  // weights that are rounded to bf16 if the task allows it. With AVX-512 and few rows, so is fp8.
  bool multiplies_bf16;
  // Many rows are multiplied by a matrix unit, with weights that are rounded for results of 16
  // bits.
  bool matrix_unit;
  // Many rows multiply int8 and int4 as integers, as few rows do in all sets.
  bool multiplies_integer_pairs;
};

const std::vector<NamedTable>& tables();

inline void PrintTo(const NamedTable& table, std::ostream* out) { *out << table.name; }

using pkv::test::instruction_sets;
using pkv::test::stored_dtypes;
static_assert(pkv::test::unknown_isa == last_isa + 1);
static_assert(pkv::test::unknown_dtype == last_read_dtype + 1);
inline constexpr pkv_dtype row_dtypes[] = {PKV_F32, PKV_F16, PKV_BF16};
inline constexpr pkv_layout layouts[] = {PKV_LAYOUT_PACKED, PKV_LAYOUT_PLAIN};

}  // namespace pkv::kernels::test
