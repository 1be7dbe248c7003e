// Arithmetic on sizes and ranges that come from a caller. A result that does not fit is an error
// (PKV_OVERFLOW) and never wraps around.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace pkv {

inline uint64_t checked_mul(uint64_t a, uint64_t b, const char* what) {
  uint64_t result;
  if (__builtin_mul_overflow(a, b, &result))
    fail(PKV_OVERFLOW, "%s: %llu * %llu does not fit into 64 bits", what, llu(a), llu(b));
  return result;
}

inline uint64_t checked_add(uint64_t a, uint64_t b, const char* what) {
  uint64_t result;
  if (__builtin_add_overflow(a, b, &result))
    fail(PKV_OVERFLOW, "%s: %llu + %llu does not fit into 64 bits", what, llu(a), llu(b));
  return result;
}

// More bytes than any process has: the largest address spaces have 57 bits, and the system has half
// of that. A caller that claims more has miscounted, so nothing at such an address is read.
inline constexpr uint64_t max_process_bytes = uint64_t{1} << 56;

// Returns the bytes of `count` elements in a caller's memory; throws if no process has that many.
inline uint64_t checked_bytes(uint64_t count, uint64_t element, const char* what) {
  const uint64_t bytes = checked_mul(count, element, what);
  if (bytes > max_process_bytes)
    fail(PKV_OVERFLOW, "%s: %llu elements of %llu bytes; no process has 2^56 bytes", what,
         llu(count), llu(element));
  return bytes;
}

// Throws unless [first, first + n) lies in [0, limit).
inline void check_range(uint64_t first, uint64_t n, uint64_t limit, const char* what) {
  if (first > limit || n > limit - first)
    fail(PKV_OUT_OF_RANGE, "%s: %llu from %llu on reach beyond the end, %llu", what, llu(n),
         llu(first), llu(limit));
}

constexpr uint64_t ceil_div(uint64_t a, uint64_t b) { return a / b + (a % b != 0); }

// Returns how many more are needed than there are.
constexpr uint64_t lacking(uint64_t needed, uint64_t there) {
  return needed > there ? needed - there : 0;
}

// The result must fit.
constexpr uint64_t round_up(uint64_t value, uint64_t multiple) {
  return ceil_div(value, multiple) * multiple;
}

}  // namespace pkv
