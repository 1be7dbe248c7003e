// The atomics a lock-free structure is built on. Such a structure is a template over this policy,
// so that a test can put a scheduler in its place and run chosen interleavings of the very same
// source. What a policy gives:
//   atomic<T>        load, store, compare_exchange_weak, fetch_add, fetch_and, fetch_or, with
//                    orders as in std::atomic
//   thread_number()  a small number, not the same for two threads that run at once: it decides
//                    which hints a thread uses, nothing else
#pragma once

#include <atomic>
#include <cstdint>

namespace pkv::memory {

struct StdAtomics {
  template <class T>
  using atomic = std::atomic<T>;

  static uint32_t thread_number() noexcept {
    static constinit std::atomic<uint32_t> threads{0};
    static constinit thread_local uint32_t number = 0;  // 0: this thread has none yet
    if (number == 0) number = threads.fetch_add(1, std::memory_order_relaxed) + 1;
    return number;
  }
};

}  // namespace pkv::memory
