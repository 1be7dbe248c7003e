// System calls that a signal may interrupt.
#pragma once

#include <cerrno>

namespace pkv::os {

// Repeats a call until no signal interrupts it.
template <class Call>
auto uninterrupted(const Call& call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

}  // namespace pkv::os
