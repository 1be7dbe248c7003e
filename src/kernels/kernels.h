// The kernels as the engine sees them: one table of function pointers per instruction set.
#pragma once

#include "kernels/views.h"

namespace pkv {

// The functions for one stored dtype and one layout.
struct KvKernels {
  void (*attend)(const AttendTask&);
  void (*store)(const CopyTask&);  // caller's rows -> sequence
  void (*load)(const CopyTask&);   // sequence -> caller's rows
};

struct Kernels {
  pkv_isa isa;
  KvKernels packed[3];  // by dtype_index()
  KvKernels plain[3];
  void (*prepare)(const QueryTask&);
  void (*finish)(const FinishTask&);
};

constexpr unsigned dtype_index(pkv_dtype dtype) { return static_cast<unsigned>(dtype) - PKV_F32; }
constexpr bool dtype_known(pkv_dtype dtype) { return dtype >= PKV_F32 && dtype <= PKV_BF16; }
constexpr unsigned dtype_bytes(pkv_dtype dtype) { return dtype == PKV_F32 ? 4 : 2; }

// True if this build has the instruction set and the processor can run it. AUTO: true.
bool isa_supported(pkv_isa isa);

// "avx512"; for an unknown value "unknown".
const char* isa_name(pkv_isa isa);

// The table of an instruction set that isa_supported(); AUTO: the best one.
const Kernels& select_kernels(pkv_isa isa);

}  // namespace pkv
