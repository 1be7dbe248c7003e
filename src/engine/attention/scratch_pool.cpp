// Keeps free scratch vectors in an array of atomic slots.
#include "engine/attention/scratch_pool.h"

#include <new>

namespace pkv::attention {

ScratchPool::~ScratchPool() {
  for (auto& slot : free_)
    if (Vector* vector = slot.load(std::memory_order_relaxed)) destroy(vector);
}

ScratchPool::Vector* ScratchPool::borrow() {
  for (auto& slot : free_) {
    // Acquire makes the last borrower's writes to the fields of the vector visible.
    if (Vector* vector = slot.exchange(nullptr, std::memory_order_acquire)) return vector;
  }
  static_assert(std::uses_allocator_v<Vector, std::pmr::polymorphic_allocator<>>);
  std::pmr::polymorphic_allocator<> allocator(&memory_);
  return allocator.new_object<Vector>();
}

void ScratchPool::give_back(Vector* vector) noexcept {
  for (auto& slot : free_) {
    Vector* empty = nullptr;
    if (slot.compare_exchange_strong(empty, vector, std::memory_order_release,
                                     std::memory_order_relaxed))
      return;
  }
  destroy(vector);
}

void ScratchPool::destroy(Vector* vector) noexcept {
  std::pmr::polymorphic_allocator<> allocator(&memory_);
  allocator.delete_object(vector);
}

ScratchPool::Buffer::Buffer(ScratchPool& pool, size_t floats)
    : pool_(pool), vector_(pool.borrow()) {
  try {
    floats += line_floats;  // more than needed, so that the memory can be aligned
    if (vector_->size() < floats) {
      vector_->clear();  // nothing is copied: the workers touch the new pages first
      vector_->resize(floats);
    }
  } catch (...) {
    pool_.give_back(vector_);
    throw;
  }
  const size_t past_line =
      reinterpret_cast<uintptr_t>(vector_->data()) / sizeof(float) % line_floats;
  aligned_ = vector_->data() + (line_floats - past_line) % line_floats;
}

ScratchPool::Buffer::~Buffer() { pool_.give_back(vector_); }

}  // namespace pkv::attention
