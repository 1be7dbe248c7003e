// Working memory of attention calls. It is kept from one call to the next, because the first write
// to a fresh page costs far more than a write to a page that was used before.
#pragma once

#include <array>
#include <atomic>
#include <memory_resource>
#include <vector>

#include "base/checked.h"

namespace pkv::attention {

// Rounds a number of floats up to whole cache lines.
inline size_t whole_lines(size_t floats) { return round_up(floats, 16); }

// A few vectors that concurrent calls borrow, without a lock. A call that finds none makes one.
class ScratchPool {
 public:
  explicit ScratchPool(std::pmr::memory_resource& memory) : memory_(memory) {}
  ~ScratchPool();
  ScratchPool(const ScratchPool&) = delete;
  ScratchPool& operator=(const ScratchPool&) = delete;

  // Working memory of at least `floats` floats, borrowed for as long as the object lives. Its
  // contents are undefined. Throws bad_alloc.
  class Buffer {
   public:
    Buffer(ScratchPool& pool, size_t floats);
    ~Buffer();
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    float* data() { return vector_->data(); }

   private:
    ScratchPool& pool_;
    std::pmr::vector<float>* vector_;
  };

 private:
  using Vector = std::pmr::vector<float>;

  Vector* borrow();
  void give_back(Vector* vector) noexcept;
  void destroy(Vector* vector) noexcept;

  std::pmr::memory_resource& memory_;
  std::array<std::atomic<Vector*>, 16> free_{};
};

}  // namespace pkv::attention
