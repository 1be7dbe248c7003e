// The bytes of all blocks of one group, as one mapping: from the caller's allocator or from the
// system.
#pragma once

#include "base/memory.h"
#include "base/os.h"

namespace pkv::memory {

class Slab {
 public:
  // Throws NO_MEMORY. size > 0.
  Slab(uint64_t size, HookMemory& memory, pkv_huge_pages huge_pages);
  ~Slab();
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  unsigned char* data() const { return data_; }
  uint64_t size() const { return size_; }
  bool huge() const { return huge_; }  // the system agreed to use huge pages

 private:
  const uint64_t size_;
  HookMemory& memory_;
  const pkv_huge_pages wish_;
  bool huge_ = false;
  unsigned char* data_ = nullptr;
};

}  // namespace pkv::memory
