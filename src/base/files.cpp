#include "base/files.h"

#include <utility>

namespace pkv::os {

void fail_io(const char* what, const std::string& name, int error) {
  // Of a long name, the end is shown: it says more than the beginning.
  const size_t shown = name.size() > 120 ? name.size() - 120 : 0;
  fail(io_details(error), "%s %s%s: %s (errno %d)", what, shown > 0 ? "..." : "",
       name.c_str() + shown, errno_text(error), error);
}

File::File(int descriptor, Owner owner, std::string_view name) : File(descriptor, owner) {
  name_ = name;
}

File::File(File&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      owner_(other.owner_),
      signal_(other.signal_),
      name_(std::move(other.name_)) {}

}  // namespace pkv::os
