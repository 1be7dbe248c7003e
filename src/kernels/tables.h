// The table of each instruction set this build has: its definition is in isa/, compiled with flags
// of its own; only select.cpp decides which may run.
#pragma once

#include "kernels/kernels.h"

namespace pkv {

extern const Kernels scalar_kernels;
#if defined(__x86_64__)
extern const Kernels sse2_kernels;
extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;
extern const Kernels avx512_vnni_kernels;
extern const Kernels avx512_bf16_kernels;
#elif defined(__aarch64__)
extern const Kernels neon_kernels;
#endif

}  // namespace pkv
