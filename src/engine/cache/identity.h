// What a caller names a model by, and what it keeps others out with: bytes of files and of stores.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"

namespace pkv {

inline constexpr uint64_t most_fingerprint = 64, least_key = 16, most_key = 64;

// Throws INVALID_ARGUMENT, TOO_LARGE.
inline std::span<const unsigned char> check_bytes(const void* bytes, uint64_t size, uint64_t most,
                                                  const char* name) {
  if (bytes == nullptr && size > 0)
    fail(PKV_INVALID_ARGUMENT, "%s is NULL for %llu bytes", name, (unsigned long long)size);
  if (size > most)
    fail(PKV_TOO_LARGE, "a %s of %llu bytes; at most %llu are possible", name,
         (unsigned long long)size, (unsigned long long)most);
  return {static_cast<const unsigned char*>(bytes), static_cast<size_t>(size)};
}

inline std::span<const unsigned char> check_fingerprint(const void* bytes, uint64_t size) {
  return check_bytes(bytes, size, most_fingerprint, "fingerprint");
}

inline std::span<const unsigned char> check_key(const void* bytes, uint64_t size) {
  if (bytes != nullptr && size < least_key)
    fail(PKV_INVALID_ARGUMENT, "a key of %llu bytes; at least %llu are needed",
         (unsigned long long)size, (unsigned long long)least_key);
  return check_bytes(bytes, size, most_key, "key");
}

}  // namespace pkv
