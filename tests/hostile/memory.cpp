// operator new and delete of this program. The library takes them too, since its operator new is the dynamic linker's choice.
#include <atomic>
#include <cstdlib>
#include <new>

#include "support.h"

namespace hostile {

namespace {

std::atomic<int64_t> live{0};
thread_local uint64_t fail_at = 0;
thread_local bool fail_struck = false;

void* take(size_t size, size_t alignment) noexcept {
  if (fail_at == 1) {
    fail_struck = true;
    return nullptr;
  }
  if (fail_at > 1) fail_at--;
  if (size > SIZE_MAX / 2) return nullptr;
  const size_t step = alignment < sizeof(void*) ? sizeof(void*) : alignment;
  void* const memory = std::aligned_alloc(step, (size + step) / step * step);
  if (memory != nullptr) live.fetch_add(1, std::memory_order_relaxed);
  return memory;
}

void* take_or_throw(size_t size, size_t alignment) {
  void* const memory = take(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void give(void* memory) noexcept {
  if (memory == nullptr) return;
  live.fetch_sub(1, std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

int64_t live_news() { return live.load(); }

FailingNew::FailingNew(uint64_t k) {
  fail_struck = false;
  fail_at = k;
}
FailingNew::~FailingNew() { fail_at = 0; }
bool FailingNew::struck() const { return fail_struck; }

}  // namespace hostile

using hostile::give;
using hostile::take;
using hostile::take_or_throw;

void* operator new(size_t size) { return take_or_throw(size, 16); }
void* operator new[](size_t size) { return take_or_throw(size, 16); }
void* operator new(size_t size, std::align_val_t alignment) { return take_or_throw(size, static_cast<size_t>(alignment)); }
void* operator new[](size_t size, std::align_val_t alignment) { return take_or_throw(size, static_cast<size_t>(alignment)); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return take(size, 16); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return take(size, 16); }
void* operator new(size_t size, std::align_val_t a, const std::nothrow_t&) noexcept { return take(size, static_cast<size_t>(a)); }
void* operator new[](size_t size, std::align_val_t a, const std::nothrow_t&) noexcept { return take(size, static_cast<size_t>(a)); }
void operator delete(void* memory) noexcept { give(memory); }
void operator delete[](void* memory) noexcept { give(memory); }
void operator delete(void* memory, size_t) noexcept { give(memory); }
void operator delete[](void* memory, size_t) noexcept { give(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { give(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { give(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { give(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { give(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { give(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { give(memory); }
void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept { give(memory); }
void operator delete[](void* memory, std::align_val_t, const std::nothrow_t&) noexcept { give(memory); }
