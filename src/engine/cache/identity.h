// Checks of the fingerprint and the key that a caller gives for files and for stores. They are in a
// file of their own because the config of a cache and the options of a file share them.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"

namespace pkv {

// In bytes.
inline constexpr uint64_t max_fingerprint_size = 64, min_key_size = 16, max_key_size = 64;

// Returns the caller's bytes as a span; `name` is what sentences call them. Throws INVALID_ARGUMENT
// if `bytes` is NULL and `size` is not 0, or if `size` is above `max_size`.
inline std::span<const unsigned char> check_bytes(const void* bytes, uint64_t size,
                                                  uint64_t max_size, const char* name) {
  if (bytes == nullptr && size > 0)
    fail(PKV_INVALID_ARGUMENT, "%s is NULL for %llu bytes", name, llu(size));
  if (size > max_size)
    fail(PKV_INVALID_ARGUMENT, "a %s of %llu bytes; it must have at most %llu", name, llu(size),
         llu(max_size));
  return {static_cast<const unsigned char*>(bytes), static_cast<size_t>(size)};
}

// The fingerprint may be empty. Throws as check_bytes() does.
inline std::span<const unsigned char> check_fingerprint(const void* bytes, uint64_t size) {
  return check_bytes(bytes, size, max_fingerprint_size, "fingerprint");
}

// NULL means that there is no key. Throws as check_bytes() does, and INVALID_ARGUMENT for a key
// that is too short.
inline std::span<const unsigned char> check_key(const void* bytes, uint64_t size) {
  if (bytes != nullptr && size < min_key_size)
    fail(PKV_INVALID_ARGUMENT, "a key of %llu bytes; it must have at least %llu", llu(size),
         llu(min_key_size));
  return check_bytes(bytes, size, max_key_size, "key");
}

}  // namespace pkv
