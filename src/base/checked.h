// Arithmetic on sizes that come from a caller: a result that does not fit is PKV_OVERFLOW, never a
// wrap.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace pkv {

inline uint64_t checked_mul(uint64_t a, uint64_t b, const char* what) {
  uint64_t result;
  if (__builtin_mul_overflow(a, b, &result))
    fail(PKV_OVERFLOW, "%s: %llu * %llu does not fit into 64 bits", what, (unsigned long long)a,
         (unsigned long long)b);
  return result;
}

inline uint64_t checked_add(uint64_t a, uint64_t b, const char* what) {
  uint64_t result;
  if (__builtin_add_overflow(a, b, &result))
    fail(PKV_OVERFLOW, "%s: %llu + %llu does not fit into 64 bits", what, (unsigned long long)a,
         (unsigned long long)b);
  return result;
}

// More than any process has: the largest address spaces have 57 bits, half of them the system's.
// Whoever claims more has miscounted, and following such sizes would lead anywhere.
inline constexpr uint64_t most_bytes = uint64_t{1} << 56;

// Bytes of `count` elements of a caller's memory.
inline uint64_t checked_bytes(uint64_t count, uint64_t element, const char* what) {
  const uint64_t bytes = checked_mul(count, element, what);
  if (bytes > most_bytes)
    fail(PKV_OVERFLOW, "%s: %llu elements of %llu bytes; no process has 2^56 bytes", what,
         (unsigned long long)count, (unsigned long long)element);
  return bytes;
}

// Throws unless [first, first + n) lies in [0, limit).
inline void check_range(uint64_t first, uint64_t n, uint64_t limit, const char* what) {
  if (first > limit || n > limit - first)
    fail(PKV_OUT_OF_RANGE, "%s: %llu from %llu on reach beyond the end, %llu", what,
         (unsigned long long)n, (unsigned long long)first, (unsigned long long)limit);
}

constexpr uint64_t ceil_div(uint64_t a, uint64_t b) { return a / b + (a % b != 0); }

}  // namespace pkv
