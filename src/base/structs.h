// Structs that begin with struct_size, between this build and a caller compiled against older or
// newer headers.
#pragma once

#include <cstring>

#include "base/status.h"

namespace pkv {

// What the caller said, over defaults for the fields it does not know. A part this build does not
// know must be zero.
template <class Struct>
Struct read_struct(const Struct* from, Struct defaults, const char* name) {
  if (from == nullptr) fail(PKV_INVALID_ARGUMENT, "%s is NULL", name);
  // By bytes: structs of a list lie struct_size apart, at any address.
  uint32_t size;
  std::memcpy(&size, static_cast<const void*>(from), sizeof size);
  // A field is known or unknown as a whole: a struct with fields of 8 bytes, of whatever version,
  // ends at a multiple of that.
  static_assert(alignof(Struct) == 8);
  if (size == 0 || size > 4096 || size % alignof(Struct) != 0)
    fail(PKV_INVALID_ARGUMENT, "%s: struct_size is %u; call its _init function first", name, size);
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  for (size_t i = sizeof(Struct); i < size; i++)
    if (bytes[i] != 0)
      fail(PKV_INVALID_ARGUMENT, "%s: byte %zu is not zero, and this library knows only %zu", name,
           i, sizeof(Struct));
  std::memcpy(&defaults, bytes, size < sizeof(Struct) ? size : sizeof(Struct));
  return defaults;
}

// Fills the caller's struct as far as it goes; a part this build does not know becomes zero.
// struct_size stays the caller's.
template <class Struct>
void write_struct(Struct* to, Struct value, uint32_t size, const char* name) {
  if (to == nullptr) fail(PKV_INVALID_ARGUMENT, "%s is NULL", name);
  if (size < sizeof(uint32_t) || size > 4096 || size % sizeof(uint32_t) != 0)
    fail(PKV_INVALID_ARGUMENT, "%s: struct_size is %u; this library has %zu", name, size,
         sizeof(Struct));
  value.struct_size = size;
  std::memset(to, 0, size);
  std::memcpy(to, &value, size < sizeof(Struct) ? size : sizeof(Struct));
}

}  // namespace pkv
