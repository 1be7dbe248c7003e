// Working memory of one attention task. It cuts the memory that the engine provides into arrays,
// each aligned to 64 bytes. With a base of NULL it only measures the size that the task needs.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace pkv::kernels {

class Scratch {
 public:
  explicit Scratch(unsigned char* base) : base_(base) {}

  template <class T>
  T* take(size_t n) {
    unsigned char* const at = base_ != nullptr ? base_ + used_ : nullptr;
    used_ += (n * sizeof(T) + 63) / 64 * 64;
    return reinterpret_cast<T*>(at);
  }
  size_t used() const { return used_; }

 private:
  unsigned char* base_;
  size_t used_ = 0;
};

}  // namespace pkv::kernels
