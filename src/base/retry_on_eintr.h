// System calls that a signal can interrupt.
#pragma once

#include <cerrno>

namespace pkv::os {

// Repeats a system call as long as it fails with EINTR, and returns its result.
template <class Call>
auto retry_on_eintr(const Call& call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

}  // namespace pkv::os
