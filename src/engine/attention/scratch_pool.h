// Working memory of attention calls. It is kept from one call to the next, because the first write
// to a fresh page costs far more than a write to a page that was used before.
#pragma once

#include <array>
#include <atomic>
#include <memory_resource>
#include <vector>

#include "base/checked.h"
#include "base/vectors.h"

namespace pkv::attention {

inline constexpr size_t line_floats = 16;  // floats of a cache line

// Rounds a number of floats up to whole cache lines.
inline size_t whole_lines(size_t floats) { return round_up(floats, line_floats); }

// A few vectors that concurrent calls borrow, without a lock. A call that finds no free vector
// makes one.
class ScratchPool {
  using Vector = NumberVector<float>;

 public:
  explicit ScratchPool(std::pmr::memory_resource& memory) : memory_(memory) {}
  ~ScratchPool();
  ScratchPool(const ScratchPool&) = delete;
  ScratchPool& operator=(const ScratchPool&) = delete;

  // Working memory of at least `floats` floats, aligned to a cache line and borrowed for as long as
  // the object lives. Its contents are undefined. Throws bad_alloc.
  class Buffer {
   public:
    Buffer(ScratchPool& pool, size_t floats);
    ~Buffer();
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    float* data() { return aligned_; }

   private:
    ScratchPool& pool_;
    Vector* vector_;
    float* aligned_;
  };

 private:
  Vector* borrow();
  void give_back(Vector* vector) noexcept;
  void destroy(Vector* vector) noexcept;

  std::pmr::memory_resource& memory_;
  std::array<std::atomic<Vector*>, 16> free_{};
};

}  // namespace pkv::attention
