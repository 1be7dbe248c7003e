// Counts basic blocks of the sources that are compiled for that (see meson.build).
#pragma once

#include <cstdint>

namespace pkv::test {

inline thread_local uint64_t visits = 0;

// Counts what a function visits.
template <class Call>
uint64_t count(const Call& call) {
  const uint64_t before = visits;
  call();
  return visits - before;
}

}  // namespace pkv::test
