// The tables of all instruction sets in this build. Each is defined in a file of isa/, which is
// compiled with its own flags; only select.cpp decides which of them may run.
#pragma once

#include "kernels/kernels.h"

namespace pkv::kernels {

extern const Table scalar_table;
#if defined(__x86_64__)
extern const Table sse2_table;
extern const Table avx2_table;
extern const Table avx_vnni_table;
extern const Table avx512_table;
extern const Table avx512_vnni_table;
extern const Table avx512_bf16_table;
extern const Table zen5_table;
extern const Table amx_table;
#elif defined(__aarch64__)
extern const Table neon_table;
extern const Table neon_dot_table;
extern const Table neon_bf16_table;
#endif

}  // namespace pkv::kernels
