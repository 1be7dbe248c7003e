// Reading, checking and filling the structs of the C interface that begin with struct_size.
#pragma once

#include <cstring>

#include "base/status.h"

namespace pkv {

// Checks that the caller's headers give the struct this size. A larger size is refused as well: it
// may come from newer headers or be a mistake, and the library must neither write past the caller's
// struct nor ignore fields that the caller has set. A struct that grows after version 1.0 accepts
// its older sizes here.
template <class Struct>
void check_struct_size(uint64_t size, const char* name) {
  if (size == sizeof(Struct)) return;
  fail(PKV_INVALID_ARGUMENT, "%s: struct_size is %llu; set it to the sizeof of the struct, %zu%s",
       name, llu(size), sizeof(Struct),
       size > sizeof(Struct) ? " (headers that are newer than the library do not work)" : "");
}

// Returns the caller's struct.
template <class Struct>
Struct read_struct(const Struct* from, const char* name) {
  if (from == nullptr) fail(PKV_INVALID_ARGUMENT, "%s is NULL", name);
  // Copied as bytes, because the caller's struct may be unaligned.
  Struct result;
  std::memcpy(&result.struct_size, static_cast<const void*>(from), sizeof result.struct_size);
  check_struct_size<Struct>(result.struct_size, name);
  std::memcpy(&result, static_cast<const void*>(from), sizeof result);
  return result;
}

// Returns the caller's struct, or the defaults if it is NULL.
template <class Struct>
Struct read_optional(const Struct* from, const char* name) {
  return from == nullptr ? Struct{} : read_struct(from, name);
}

// Throws unless a field that switches something on is 0 or 1.
inline void check_flag(uint32_t value, const char* name) {
  if (value > 1) fail(PKV_INVALID_ARGUMENT, "%s is %u; it must be 0 or 1", name, value);
}

// Fills the caller's struct, whose struct_size the caller has set.
template <class Struct>
void fill_struct(Struct* to, Struct value, const char* name) {
  if (to == nullptr) fail(PKV_INVALID_ARGUMENT, "%s is NULL", name);
  check_struct_size<Struct>(to->struct_size, name);
  value.struct_size = sizeof value;
  std::memcpy(static_cast<void*>(to), &value, sizeof value);
}

}  // namespace pkv
