// The clock in milliseconds by which durations end: the system's, or the caller's, with which tests
// and simulations decide what time it is. A time that never comes does once the caller's clock is
// at the last one.
#pragma once

#include <pagedkv/common.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>

#include "base/memory.h"

namespace pkv {

class Clock {
 public:
  static constexpr uint64_t never = std::numeric_limits<uint64_t>::max();

  // If its function is NULL, the system's monotonic clock.
  explicit Clock(const pkv_clock& clock) : clock_(clock) {}

  // Returns the time, which is never before one that it returned earlier.
  uint64_t now_ms() const {
    const uint64_t read = read_ms();
    uint64_t latest = latest_.load(std::memory_order_relaxed);
    while (latest < read && !latest_.compare_exchange_weak(latest, read, std::memory_order_relaxed))
      continue;
    return std::max(latest, read);
  }
  // The time in `ms` milliseconds; `never` for 0, and if it is beyond what 64 bits can count.
  uint64_t in_ms(uint64_t ms) const {
    const uint64_t now = now_ms();
    return ms == 0 || ms > never - now ? never : now + ms;
  }

 private:
  uint64_t read_ms() const {
    if (clock_.now_ms != nullptr) {
      const HookScope scope;
      return clock_.now_ms(clock_.user);
    }
    const auto passed = std::chrono::steady_clock::now() - start_;
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(passed).count());
  }

  const pkv_clock clock_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  mutable std::atomic<uint64_t> latest_{0};
};

}  // namespace pkv
