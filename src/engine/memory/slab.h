// One allocation for the bytes of all blocks of a group. It comes from the caller's allocator, as a
// mapping from the system, which can have huge pages, or as a mapping of a file.
#pragma once

#include <string>

#include "base/memory.h"
#include "base/os.h"

namespace pkv::memory {

class Slab {
 public:
  // Allocates size bytes, which must not be 0; in a file in `directory`, unless that is empty.
  // Throws OUT_OF_MEMORY, IO.
  Slab(uint64_t size, HookMemory& memory, pkv_huge_pages huge_pages,
       const std::string& directory = {});
  ~Slab();
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  unsigned char* data() const { return data_; }
  uint64_t size() const { return size_; }
  // Returns whether the system agreed to use huge pages.
  bool huge() const { return huge_; }
  // Returns whether the bytes are those of a file, which may have to be read.
  bool in_file() const { return in_file_; }

 private:
  const uint64_t size_;
  HookMemory& memory_;
  const pkv_huge_pages huge_pages_;
  const bool in_file_;
  bool huge_ = false;
  unsigned char* data_ = nullptr;
};

}  // namespace pkv::memory
