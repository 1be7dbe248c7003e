#include "engine/attention/scratch.h"

#include <new>

namespace pkv::attention {

ScratchPool::~ScratchPool() {
  for (auto& slot : free_)
    if (Scratch* buffer = slot.load(std::memory_order_relaxed)) destroy(buffer);
}

Scratch* ScratchPool::borrow() {
  for (auto& slot : free_) {
    // Acquire: what the thread before us wrote into the vector's own fields is seen.
    if (Scratch* buffer = slot.exchange(nullptr, std::memory_order_acquire)) return buffer;
  }
  std::pmr::polymorphic_allocator<> allocator(&memory_);
  return allocator.new_object<Scratch>();
}

void ScratchPool::give_back(Scratch* buffer) noexcept {
  for (auto& slot : free_) {
    Scratch* empty = nullptr;
    if (slot.compare_exchange_strong(empty, buffer, std::memory_order_release,
                                     std::memory_order_relaxed))
      return;
  }
  destroy(buffer);
}

void ScratchPool::destroy(Scratch* buffer) noexcept {
  std::pmr::polymorphic_allocator<> allocator(&memory_);
  allocator.delete_object(buffer);
}

ScratchPool::Lease::Lease(ScratchPool& pool, size_t floats) : pool_(pool), buffer_(pool.borrow()) {
  try {
    if (buffer_->size() < floats) buffer_->resize(floats);
  } catch (...) {
    pool_.give_back(buffer_);
    throw;
  }
}

ScratchPool::Lease::~Lease() { pool_.give_back(buffer_); }

}  // namespace pkv::attention
