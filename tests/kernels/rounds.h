// The number of rounds of a random test. It is lower with sanitizers, which slow everything down.
#pragma once

#include "../support/sanitizers.h"

namespace pkv::kernels::test {

inline constexpr int rounds(int n) {
  if (!pkv::test::address_sanitizer && !pkv::test::thread_sanitizer) return n;
  return n < 10 ? 1 : n / 10;
}

}  // namespace pkv::kernels::test
