// How often a random test is run: sanitizers make everything slower.
#pragma once

#include "../support/sanitizers.h"

namespace pkv::test {

inline constexpr int rounds(int n) {
  if (!address_sanitizer && !thread_sanitizer) return n;
  return n < 10 ? 1 : n / 10;
}

}  // namespace pkv::test
