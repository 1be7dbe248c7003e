// The table of each instruction set this build has: its definition is in isa/, compiled with flags
// of its own; only select.cpp decides which may run.
#pragma once

#include "kernels/kernels.h"

namespace pkv::kernels {

extern const Table scalar_table;
#if defined(__x86_64__)
extern const Table sse2_table;
extern const Table avx2_table;
extern const Table avx512_table;
extern const Table avx512_vnni_table;
extern const Table avx512_bf16_table;
#elif defined(__aarch64__)
extern const Table neon_table;
#endif

}  // namespace pkv::kernels
