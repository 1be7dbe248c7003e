// Arithmetic on sizes that come from a caller: a result that does not fit is PKV_OVERFLOW, never a wrap.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace pkv {

inline uint64_t checked_mul(uint64_t a, uint64_t b, const char* what) {
  uint64_t result;
  if (__builtin_mul_overflow(a, b, &result))
    fail(PKV_OVERFLOW, "%s: %llu * %llu does not fit into 64 bits", what, (unsigned long long)a, (unsigned long long)b);
  return result;
}

inline uint64_t checked_add(uint64_t a, uint64_t b, const char* what) {
  uint64_t result;
  if (__builtin_add_overflow(a, b, &result))
    fail(PKV_OVERFLOW, "%s: %llu + %llu does not fit into 64 bits", what, (unsigned long long)a, (unsigned long long)b);
  return result;
}

// Throws unless [first, first + n) lies in [0, limit).
inline void check_range(uint64_t first, uint64_t n, uint64_t limit, const char* what) {
  if (first > limit || n > limit - first)
    fail(PKV_OUT_OF_RANGE, "%s: %llu from %llu on reach beyond the end, %llu", what, (unsigned long long)n, (unsigned long long)first,
         (unsigned long long)limit);
}

constexpr uint64_t ceil_div(uint64_t a, uint64_t b) { return a / b + (a % b != 0); }

}  // namespace pkv
