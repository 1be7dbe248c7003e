// Counts for statistics.
#pragma once

#include <atomic>
#include <cstdint>

namespace pkv {

// A number that several threads may change at the same time. It orders nothing else in memory. A
// copy is a count of its own. (std::atomic_ref would need no type, but libc++ has it only from
// version 19 on.)
class Count {
 public:
  Count() = default;
  Count(const Count& other) noexcept : value_(other) {}
  Count& operator=(const Count&) = delete;

  operator uint64_t() const noexcept { return value_.load(std::memory_order_relaxed); }
  void operator+=(uint64_t more) noexcept { value_.fetch_add(more, std::memory_order_relaxed); }
  void operator-=(uint64_t fewer) noexcept { value_.fetch_sub(fewer, std::memory_order_relaxed); }
  uint64_t operator++(int) noexcept { return value_.fetch_add(1, std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_ = 0;
};

}  // namespace pkv
