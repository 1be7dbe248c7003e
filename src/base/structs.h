// Reading and filling the structs of the C interface that begin with struct_size. The caller may
// have been compiled against older or newer headers, in which the struct is shorter or longer.
#pragma once

#include <cstring>

#include "base/status.h"

namespace pkv {

// Copies the caller's struct over `defaults`, which keeps the defaults of fields that the caller's
// headers lack. Bytes that this build does not know must be zero.
template <class Struct>
Struct read_struct(const Struct* from, Struct defaults, const char* name) {
  if (from == nullptr) fail(PKV_INVALID_ARGUMENT, "%s is NULL", name);
  // Copied as bytes, because the structs of a list lie struct_size apart, perhaps unaligned.
  uint32_t size;
  std::memcpy(&size, static_cast<const void*>(from), sizeof size);
  // The size is a multiple of 8, so that no field is known in part: every version of a struct with
  // fields of 8 bytes ends at a multiple of 8.
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

// Fills the caller's struct of `size` bytes, keeping its struct_size. Bytes that this build does
// not know become zero.
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
