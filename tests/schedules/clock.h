// Vector clocks: how much of every thread's past a thread knows.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace schedules {

// Thread 0 prepares an execution and judges its end. The others run in between.
inline constexpr int max_threads = 6;

struct Clock {
  std::array<uint32_t, max_threads> times{};

  void join(const Clock& other) {
    for (int thread = 0; thread < max_threads; thread++)
      times[thread] = std::max(times[thread], other.times[thread]);
  }
  bool covers(int thread, uint32_t time) const { return time <= times[thread]; }
};

}  // namespace schedules
