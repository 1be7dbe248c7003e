// A clock for durations that stands still until a test moves it. It must outlive its cache.
#pragma once

#include <pagedkv/common.h>

#include <atomic>

namespace cache_test {

class TestClock {
 public:
  explicit TestClock(uint64_t now_ms = 0) : now_(now_ms) {}
  TestClock(const TestClock&) = delete;
  TestClock& operator=(const TestClock&) = delete;

  void set(uint64_t now_ms) { now_ = now_ms; }
  void advance(uint64_t ms) { now_ += ms; }
  // Ends all that has a duration, and all that has none.
  void end() { now_ = UINT64_MAX; }
  const pkv_clock* hook() const { return &hook_; }

 private:
  std::atomic<uint64_t> now_;
  const pkv_clock hook_{[](void* user) { return static_cast<TestClock*>(user)->now_.load(); },
                        this};
};

}  // namespace cache_test
