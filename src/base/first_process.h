// For a dependency whose threads a forked child does not have.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/os.h"

namespace pkv {

// Remembers the first process that used such a dependency. A forked child cannot use it: the child
// does not have the threads, and they may have held locks at the fork.
class FirstProcess {
 public:
  // Returns false if an ancestor of this process used the dependency before the fork.
  bool claim() {
    const uint64_t now = os::fork_epoch() + 1;
    uint64_t before = 0;
    return epoch_.compare_exchange_strong(before, now, std::memory_order_relaxed) || before == now;
  }

 private:
  std::atomic<uint64_t> epoch_{0};  // the fork epoch of that process, plus 1; 0 while there is none
};

}  // namespace pkv
