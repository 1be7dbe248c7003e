// x86_features() of os.h, from what the compiler's library knows.
#pragma once

#include "base/os.h"

#ifdef __x86_64__
#include <cpuid.h>

namespace pkv::os {

// clang 18 cannot ask for it by name. The answer is kept, because cpuid traps in a virtual machine.
inline bool has_avx_vnni() noexcept {
  static const bool found = [] {
    unsigned a, b, c, d;
    constexpr unsigned avx_vnni = 1u << 4;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & avx_vnni) != 0;
  }();
  return found;
}

inline X86Features ask_compiler() noexcept {
  __builtin_cpu_init();
  X86Features found{};
  found.avx = __builtin_cpu_supports("avx");
  found.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
               __builtin_cpu_supports("f16c");
  found.avx_vnni = found.avx2 && has_avx_vnni();
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
