// Lists the names of an enum for an error message.
#include "base/enum_names.h"

#include <cstdio>

#include "base/status.h"

namespace pkv {

void EnumNames::check(int value, const char* owner, const char* field) const {
  if (has(value)) return;
  char list[160] = "";
  size_t length = 0;
  for (int known = first_; known < end_; known++) {
    const char* const separator = known == first_ ? "" : known == last() ? " or " : ", ";
    length += static_cast<size_t>(std::snprintf(list + length, sizeof list - length, "%s%s (%d)",
                                                separator, of(known), known));
  }
  fail(PKV_INVALID_ARGUMENT, "%s: %s is %d; it must be %s", owner, field, value, list);
}

}  // namespace pkv
