// One allocation for the bytes of all blocks of a group. It comes from the caller's allocator, or
// as a mapping from the system, which can have huge pages.
#pragma once

#include "base/memory.h"
#include "base/os.h"

namespace pkv::memory {

class Slab {
 public:
  // Allocates size bytes, which must not be 0. Throws NO_MEMORY.
  Slab(uint64_t size, HookMemory& memory, pkv_huge_pages huge_pages);
  ~Slab();
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  unsigned char* data() const { return data_; }
  uint64_t size() const { return size_; }
  // Returns whether the system agreed to use huge pages.
  bool huge() const { return huge_; }

 private:
  const uint64_t size_;
  HookMemory& memory_;
  const pkv_huge_pages huge_pages_;
  bool huge_ = false;
  unsigned char* data_ = nullptr;
};

}  // namespace pkv::memory
