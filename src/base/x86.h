// x86_features() of os.h, from what the compiler's library knows.
#pragma once

#include "base/os.h"

#ifdef __x86_64__
namespace pkv::os {

inline X86Features ask_compiler() noexcept {
  __builtin_cpu_init();
  X86Features found{};
  found.avx = __builtin_cpu_supports("avx");
  found.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
               __builtin_cpu_supports("f16c");
  found.avx512f = __builtin_cpu_supports("avx512f");
  found.avx512 = found.avx512f && __builtin_cpu_supports("avx512cd") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512vl");
  found.vnni = __builtin_cpu_supports("avx512vnni");
  found.vbmi = __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512ifma");
  found.bf16 = __builtin_cpu_supports("avx512bf16");
  found.intel = __builtin_cpu_is("intel");
  return found;
}

}  // namespace pkv::os
#endif
