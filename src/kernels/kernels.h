// The kernels as the engine sees them: one table of function pointers per instruction set, and the
// sizes of stored rows.
#pragma once

#include "kernels/views.h"

namespace pkv::kernels {

struct Table {
  pkv_isa isa;
  void (*prepare)(const QueryTask&);
  size_t (*attend_scratch_bytes)(
      const AttendTask&);  // of its dtypes, dims, heads, group and queries
  void (*attend)(const AttendTask&);
  void (*finish)(const FinishTask&);
  void (*merge)(const MergeTask&);
  void (*store)(const CopyTask&);         // caller's rows -> sequence
  void (*load)(const CopyTask&);          // sequence -> caller's rows
  void (*transfer)(const TransferTask&);  // stored bits, from sequence to sequence
};

constexpr bool dtype_stored(pkv_dtype dtype) { return dtype >= PKV_F32 && dtype <= PKV_FP8_E5M2; }

// The types of a caller's rows.
constexpr bool dtype_of_rows(pkv_dtype dtype) { return dtype >= PKV_F32 && dtype <= PKV_BF16; }

// Bytes of the unit in which pkv_kv_view counts strides: rows with scales are counted in bytes.
constexpr unsigned stride_unit(pkv_dtype dtype) {
  return dtype == PKV_F32 ? 4 : dtype <= PKV_BF16 ? 2 : 1;
}

// True if this build has the instruction set and the processor can run it. AUTO: true.
bool isa_supported(pkv_isa isa);

// "avx512"; for an unknown value "unknown".
const char* isa_name(pkv_isa isa);

// The table of an instruction set that isa_supported(); AUTO: the best one.
const Table& select(pkv_isa isa);

}  // namespace pkv::kernels
