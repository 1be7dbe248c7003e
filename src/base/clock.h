// A clock in milliseconds that stands still once it was set, so that tests and simulations decide
// when times to live end. A time that never comes does once the clock is set to its last one.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

namespace pkv {

class Clock {
 public:
  static constexpr uint64_t never = std::numeric_limits<uint64_t>::max();

  // Milliseconds since the clock was made, or the time that was set last.
  uint64_t now_ms() const {
    using std::chrono::milliseconds;
    if (set_) return *set_;
    const auto passed = std::chrono::steady_clock::now() - start_;
    return static_cast<uint64_t>(std::chrono::duration_cast<milliseconds>(passed).count());
  }
  // The time in `ms` milliseconds; `never` for 0, and if it is beyond what 64 bits can count.
  uint64_t in_ms(uint64_t ms) const {
    const uint64_t now = now_ms();
    return ms == 0 || ms > never - now ? never : now + ms;
  }
  // The clock stands at `ms` from now on.
  void set(uint64_t ms) { set_ = ms; }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::optional<uint64_t> set_;
};

}  // namespace pkv
