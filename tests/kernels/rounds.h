// How often a random test is run: sanitizers make everything slower.
#pragma once

namespace pkv::test {

inline constexpr int rounds(int n) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return n < 10 ? 1 : n / 10;
#else
  return n;
#endif
}

}  // namespace pkv::test
