// Replaces operator new and delete, so that memory::Refusal can refuse memory. The library uses
// them as well, because the dynamic linker chooses them for the whole process. With the thread
// sanitizer, which has an operator new of its own, this replaces nothing and refuses no memory.
#include <cstdlib>
#include <new>

#include "memory.h"
#include "portable.h"
#include "sanitizers.h"

#if !defined(__SANITIZE_THREAD__) && !__has_feature(thread_sanitizer)

namespace {

void* take(size_t size, size_t alignment) noexcept {
  if (memory::refuse() || memory::refuse_everywhere(memory::Source::operator_new) ||
      size > memory::largest)
    return nullptr;
  void* const block =
      portable::allocate_aligned(alignment, (size + alignment) / alignment * alignment);
  if (block == nullptr) return nullptr;
  memory::news.fetch_add(1, std::memory_order_relaxed);
  memory::count(portable::usable_size(block));
  return block;
}

void give(void* block) noexcept {
  if (block == nullptr) return;
  memory::news.fetch_sub(1, std::memory_order_relaxed);
  memory::live_bytes.fetch_sub(static_cast<int64_t>(portable::usable_size(block)),
                               std::memory_order_relaxed);
  portable::free_aligned(block);
}

void* take_or_throw(size_t size, size_t alignment) {
  void* const block = take(size, alignment);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

constexpr size_t usual = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

}  // namespace

void* operator new(size_t size) { return take_or_throw(size, usual); }
void* operator new[](size_t size) { return take_or_throw(size, usual); }
void* operator new(size_t size, std::align_val_t alignment) {
  return take_or_throw(size, static_cast<size_t>(alignment));
}
void* operator new[](size_t size, std::align_val_t alignment) {
  return take_or_throw(size, static_cast<size_t>(alignment));
}
void* operator new(size_t size, const std::nothrow_t&) noexcept { return take(size, usual); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return take(size, usual); }
void* operator new(size_t size, std::align_val_t a, const std::nothrow_t&) noexcept {
  return take(size, static_cast<size_t>(a));
}
void* operator new[](size_t size, std::align_val_t a, const std::nothrow_t&) noexcept {
  return take(size, static_cast<size_t>(a));
}
void operator delete(void* block) noexcept { give(block); }
void operator delete[](void* block) noexcept { give(block); }
void operator delete(void* block, size_t) noexcept { give(block); }
void operator delete[](void* block, size_t) noexcept { give(block); }
void operator delete(void* block, std::align_val_t) noexcept { give(block); }
void operator delete[](void* block, std::align_val_t) noexcept { give(block); }
void operator delete(void* block, size_t, std::align_val_t) noexcept { give(block); }
void operator delete[](void* block, size_t, std::align_val_t) noexcept { give(block); }
void operator delete(void* block, const std::nothrow_t&) noexcept { give(block); }
void operator delete[](void* block, const std::nothrow_t&) noexcept { give(block); }
void operator delete(void* block, std::align_val_t, const std::nothrow_t&) noexcept { give(block); }
void operator delete[](void* block, std::align_val_t, const std::nothrow_t&) noexcept {
  give(block);
}

#endif
