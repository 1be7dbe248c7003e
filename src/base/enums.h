// Checks and names of the values of the C interface's enums.
#pragma once

#include <algorithm>
#include <cstdio>
#include <span>

#include "base/generated/enum_values.h"
#include "base/status.h"

namespace pkv {

[[noreturn]] inline void fail_unknown(int value, std::span<const EnumValue> known, const char* name,
                                      const char* of) {
  char names[160];
  size_t size = 0;
  for (const EnumValue& each : known) {
    const int more =
        std::snprintf(names + size, sizeof names - size, "%s%s", size == 0 ? "" : ", ", each.name);
    size = std::min(size + static_cast<size_t>(more), sizeof names - 1);
  }
  fail(PKV_INVALID_ARGUMENT, "%s%s%s %d is none of %s", of, of[0] != '\0' ? ": " : "", name, value,
       names);
}

// Returns the name of a value, such as "NONE", or NULL if the enum does not have it.
template <class Enum>
const char* enum_name(Enum value) {
  for (const EnumValue& each : EnumValues<Enum>::all)
    if (each.value == static_cast<int>(value)) return each.name;
  return nullptr;
}

// Throws INVALID_ARGUMENT unless the enum has the value. `name` is that of the parameter, or of the
// field of what `of` says.
template <class Enum>
void check_enum(Enum value, const char* name, const char* of = "") {
  if (enum_name(value) == nullptr)
    fail_unknown(static_cast<int>(value), EnumValues<Enum>::all, name, of);
}

}  // namespace pkv
