// Working memory of attention calls, kept between calls: a fresh page costs far more than a warm
// one.
#pragma once

#include <array>
#include <atomic>
#include <memory_resource>
#include <vector>

namespace pkv::attention {

using Scratch = std::pmr::vector<float>;

// A few buffers that concurrent calls borrow. Lock-free; a call that finds none makes its own.
class ScratchPool {
 public:
  explicit ScratchPool(std::pmr::memory_resource& memory) : memory_(memory) {}
  ~ScratchPool();
  ScratchPool(const ScratchPool&) = delete;
  ScratchPool& operator=(const ScratchPool&) = delete;

  class Lease {
   public:
    Lease(ScratchPool& pool, size_t floats);
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    float* data() { return buffer_->data(); }

   private:
    ScratchPool& pool_;
    Scratch* buffer_;
  };

 private:
  Scratch* borrow();
  void give_back(Scratch* buffer) noexcept;
  void destroy(Scratch* buffer) noexcept;

  std::pmr::memory_resource& memory_;
  std::array<std::atomic<Scratch*>, 16> free_{};
};

}  // namespace pkv::attention
