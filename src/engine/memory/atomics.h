// The policy that gives the lock-free pool its atomics. The pool is a template over this policy, so
// that the model checker (tests/schedules) can put a scheduler in its place and run chosen
// interleavings of the same source. A policy provides:
//   atomic<T>        load, store, exchange, compare_exchange_weak, fetch_add, fetch_and, fetch_or,
//                    with memory orders as in std::atomic
//   plain<T>         a T that is not atomic and that only one thread at a time uses
//   thread_number()  a small number that no two running threads share. It decides only where a
//                    thread searches for free bits: its search start, its shard, and how far it
//                    moves when it collides with another thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/os.h"

namespace pkv::memory {

struct StdAtomics {
  template <class T>
  using atomic = std::atomic<T>;
  template <class T>
  using plain = T;

  static uint32_t thread_number() noexcept { return os::thread_number(); }
};

}  // namespace pkv::memory
