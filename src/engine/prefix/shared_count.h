// A count that several threads may add to at the same time.
#pragma once

#include <atomic>
#include <cstdint>

namespace pkv::prefix {

// It orders nothing else in memory. A copy is a count of its own. std::atomic_ref would need no
// type, but libc++ has it only from version 19 on.
class SharedCount {
 public:
  SharedCount() = default;
  SharedCount(const SharedCount& other) noexcept : value_(other) {}
  SharedCount& operator=(const SharedCount&) = delete;

  operator uint64_t() const noexcept { return value_.load(std::memory_order_relaxed); }
  void operator+=(uint64_t more) noexcept { value_.fetch_add(more, std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_ = 0;
};

}  // namespace pkv::prefix
