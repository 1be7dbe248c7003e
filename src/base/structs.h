// Reading and filling the structs of the C interface that begin with struct_size. The caller may
// have been compiled against older headers, in which the struct is shorter.
#pragma once

#include <algorithm>
#include <cstring>

#include "base/status.h"
#include "base/struct_sizes.h"

namespace pkv {

// Checks that headers up to this version have had a struct of this size. A larger one is refused as
// well: whether it is that of newer headers or a mistake cannot be told, and neither of them may
// make the library write behind the caller's struct, or overlook fields that the caller has set.
template <class Struct>
void check_struct_size(uint64_t size, const char* name) {
  constexpr auto& known = struct_sizes<Struct>;
  if (std::find(known.begin(), known.end(), size) != known.end()) return;
  fail(PKV_INVALID_ARGUMENT,
       "%s: struct_size is %llu; this library knows %zu bytes%s: pass the sizeof of the struct to "
       "its _init function, or set struct_size to it%s",
       name, (unsigned long long)size, sizeof(Struct), known.size() > 1 ? " and older sizes" : "",
       size > sizeof(Struct) ? " (headers that are newer than the library do not work)" : "");
}

// Copies the caller's struct over `defaults`, which keeps the defaults of fields that the caller's
// headers lack.
template <class Struct>
Struct read_struct(const Struct* from, Struct defaults, const char* name) {
  if (from == nullptr) fail(PKV_INVALID_ARGUMENT, "%s is NULL", name);
  // Copied as bytes, because the structs of a list lie struct_size apart, perhaps unaligned.
  uint32_t size;
  std::memcpy(&size, static_cast<const void*>(from), sizeof size);
  check_struct_size<Struct>(size, name);
  std::memcpy(&defaults, static_cast<const void*>(from), size);
  return defaults;
}

// Fills the caller's struct of `size` bytes, keeping its struct_size.
template <class Struct>
void write_struct(Struct* to, Struct value, uint64_t size, const char* name) {
  if (to == nullptr) fail(PKV_INVALID_ARGUMENT, "%s is NULL", name);
  check_struct_size<Struct>(size, name);
  value.struct_size = static_cast<uint32_t>(size);
  std::memcpy(to, &value, size);
}

}  // namespace pkv
