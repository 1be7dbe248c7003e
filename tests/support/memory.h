// Memory that can be refused: the k-th allocation of a thread from now on, through allocator hooks, and through operator new where new.cpp is
// linked to the program; or whatever goes beyond a budget. Blocks are counted, and full of NaN when they are given out.
#pragma once

#include <pagedkv/common.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace memory {

inline thread_local uint64_t countdown = 0;  // 1: the next allocation is refused, and all after it; 0: none
inline thread_local bool refused = false;

inline std::atomic<int64_t> news{0};  // blocks that new.cpp's operator new gave out and did not get back, the library's included

inline bool refuse() {
  if (countdown == 0) return false;
  if (countdown > 1) return countdown--, false;
  return refused = true;
}

// While it lives, the k-th allocation of this thread is refused, and all after it; 0: none.
class Refusal {
 public:
  explicit Refusal(uint64_t k) {
    countdown = k;
    refused = false;
  }
  Refusal(const Refusal&) = delete;
  Refusal& operator=(const Refusal&) = delete;
  ~Refusal() { countdown = 0; }
  bool struck() const { return refused; }  // it came to that
};

// Allocator hooks.
class Hooks {
 public:
  explicit Hooks(uint64_t budget = UINT64_MAX) : allocator_{alloc, free, this}, budget_(budget) {}
  Hooks(const Hooks&) = delete;
  Hooks& operator=(const Hooks&) = delete;

  const pkv_allocator* allocator() const { return &allocator_; }
  uint64_t budget() const { return budget_; }
  uint64_t bytes() const { return bytes_; }  // given out and not taken back
  int64_t live() const { return live_; }     // blocks of them
  bool sound() const { return sound_; }      // each block came back with the size and the alignment it was asked for

 private:
  // Before each block.
  struct Header {
    void* begin;
    size_t size, alignment;
  };

  static void* alloc(void* user, size_t size, size_t alignment) {
    Hooks& self = *static_cast<Hooks*>(user);
    if (refuse() || size > self.budget_ || self.bytes_ > self.budget_ - size) return nullptr;
    const size_t step = alignment < alignof(Header) ? alignof(Header) : alignment;
    const size_t room = (sizeof(Header) + step - 1) / step * step;
    void* const begin = std::aligned_alloc(step, (size + room + step - 1) / step * step);
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
    std::free(header.begin);
  }

  pkv_allocator allocator_;
  const uint64_t budget_;
  std::atomic<uint64_t> bytes_{0};
  std::atomic<int64_t> live_{0};
  std::atomic<bool> sound_{true};
};

}  // namespace memory
