// Memory that can be refused: the k-th allocation of a thread from now on, through allocator hooks
// or through operator new (if new.cpp is linked to the program), or all that exceeds a budget.
// Blocks are counted, and filled with NaN when they are given out.
#pragma once

#include <pagedkv/common.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "portable.h"

namespace memory {

// 1 refuses the next allocation and all after it, 0 refuses none.
inline thread_local uint64_t countdown = 0;
inline thread_local bool refused = false;

// Blocks that operator new of new.cpp gave out and did not get back. They include the library's.
inline std::atomic<int64_t> news{0};

// Allocations larger than this are refused by new.cpp and by the hooks in tests/hostile.
inline size_t largest = SIZE_MAX / 2;
// The counts of new.cpp's operator new since begin_count(): blocks and bytes in total, and the
// largest number of bytes at one time.
inline std::atomic<uint64_t> counted_blocks{0}, counted_bytes{0};
inline std::atomic<int64_t> live_bytes{0}, max_live_bytes{0};
inline void begin_count() { counted_blocks = counted_bytes = 0, live_bytes = max_live_bytes = 0; }
inline void count(size_t bytes) {
  counted_blocks.fetch_add(1, std::memory_order_relaxed);
  counted_bytes.fetch_add(bytes, std::memory_order_relaxed);
  const int64_t live =
      live_bytes.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed) +
      static_cast<int64_t>(bytes);
  for (int64_t peak = max_live_bytes;
       peak < live && !max_live_bytes.compare_exchange_weak(peak, live);) {
  }
}

inline bool refuse() {
  if (countdown == 0) return false;
  if (countdown > 1) return countdown--, false;
  return refused = true;
}

// ---- Over all threads -------------------------------------------------------------------------

enum class Source { hooks, operator_new, threads };

// Allocations of this thread are never refused.
inline thread_local bool exempt = false;
inline std::atomic<int64_t> everywhere{0};  // Counts down as `countdown` does.
inline std::atomic<Source> refused_source{Source::operator_new};
// Only the k-th allocation is refused.
inline std::atomic<bool> once{false};
inline std::atomic<bool> refused_everywhere{false};

inline bool refuse_everywhere(Source source) {
  if (exempt || source != refused_source) return false;
  int64_t left = everywhere.load();
  while (left != 0) {
    const int64_t next = left > 1 ? left - 1 : once ? 0 : 1;
    if (!everywhere.compare_exchange_weak(left, next)) continue;
    if (left == 1) refused_everywhere = true;
    return left == 1;
  }
  return false;
}

class Exempt {
 public:
  Exempt() : before_(exempt) { exempt = true; }
  Exempt(const Exempt&) = delete;
  Exempt& operator=(const Exempt&) = delete;
  ~Exempt() { exempt = before_; }

 private:
  const bool before_;
};

// While it lives, the k-th allocation of all threads that are not exempt is refused, and all after
// it or only that one. Allocations are those of operator new, of hooks, or of threads (where
// pthread_create asks).
class RefusalEverywhere {
 public:
  RefusalEverywhere(Source source, int64_t k, bool only_one) {
    refused_source = source;
    once = only_one;
    refused_everywhere = false;
    everywhere = k;
  }
  RefusalEverywhere(const RefusalEverywhere&) = delete;
  RefusalEverywhere& operator=(const RefusalEverywhere&) = delete;
  ~RefusalEverywhere() { everywhere = 0; }
  bool struck() const { return refused_everywhere; }
};

// While it lives, the k-th allocation of this thread is refused, and all after it. 0 refuses none.
class Refusal {
 public:
  explicit Refusal(uint64_t k) {
    countdown = k;
    refused = false;
  }
  Refusal(const Refusal&) = delete;
  Refusal& operator=(const Refusal&) = delete;
  ~Refusal() { countdown = 0; }
  bool struck() const { return refused; }  // Returns true if an allocation was refused.
};

// Allocator hooks.
class Hooks {
 public:
  explicit Hooks(uint64_t budget = UINT64_MAX) : allocator_{alloc, free, this}, budget_(budget) {}
  Hooks(const Hooks&) = delete;
  Hooks& operator=(const Hooks&) = delete;

  const pkv_allocator* allocator() const { return &allocator_; }
  uint64_t budget() const { return budget_; }
  // Bytes and blocks that were given out and not taken back.
  uint64_t bytes() const { return bytes_; }
  int64_t live() const { return live_; }
  // Returns true if each block came back with the size and the alignment that it was asked for
  // with.
  bool sound() const { return sound_; }

 private:
  // Precedes each block.
  struct Header {
    void* begin;
    size_t size, alignment;
  };

  static void* alloc(void* user, size_t size, size_t alignment) {
    Hooks& self = *static_cast<Hooks*>(user);
    if (refuse() || size > self.budget_ || self.bytes_ > self.budget_ - size) return nullptr;
    const size_t step = alignment < alignof(Header) ? alignof(Header) : alignment;
    const size_t room = (sizeof(Header) + step - 1) / step * step;
    void* const begin = portable::allocate_aligned(step, (size + room + step - 1) / step * step);
    if (begin == nullptr) return nullptr;
    auto* const block = static_cast<unsigned char*>(begin) + room;
    reinterpret_cast<Header*>(block)[-1] = {begin, size, alignment};
    std::memset(block, 0xFF, size);
    self.bytes_ += size;
    self.live_++;
    return block;
  }

  static void free(void* user, void* block, size_t size, size_t alignment) {
    Hooks& self = *static_cast<Hooks*>(user);
    const Header header = static_cast<Header*>(block)[-1];
    if (header.size != size || header.alignment != alignment) self.sound_ = false;
    self.bytes_ -= header.size;
    self.live_--;
    portable::free_aligned(header.begin);
  }

  pkv_allocator allocator_;
  const uint64_t budget_;
  std::atomic<uint64_t> bytes_{0};
  std::atomic<int64_t> live_{0};
  std::atomic<bool> sound_{true};
};

}  // namespace memory
