// Calls of the caller's allocator hooks.
#include "base/memory.h"

#include <cstdint>
#include <cstdio>
#include <new>

namespace pkv {

namespace {
thread_local unsigned hook_depth = 0;
}

bool in_hook() { return hook_depth != 0; }
HookScope::HookScope() { hook_depth++; }
HookScope::~HookScope() { hook_depth--; }

Misaligned::Misaligned(const void* memory, size_t alignment) noexcept {
  std::snprintf(text_, sizeof text_,
                "the allocator's alloc hook returned %p, which is not a multiple of %zu", memory,
                alignment);
}

HookMemory::HookMemory(const pkv_allocator* allocator) {
  if (allocator != nullptr) hooks_ = *allocator;
}

void* HookMemory::do_allocate(size_t size, size_t alignment) {
  if (is_system()) return ::operator new(size, std::align_val_t(alignment));
  HookScope scope;
  void* memory = hooks_.alloc(hooks_.user, size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  if (reinterpret_cast<uintptr_t>(memory) % alignment == 0) return memory;
  hooks_.free(hooks_.user, memory, size, alignment);
  throw Misaligned(memory, alignment);
}

void HookMemory::do_deallocate(void* memory, size_t size, size_t alignment) {
  if (is_system()) {
    ::operator delete(memory, size, std::align_val_t(alignment));
    return;
  }
  HookScope scope;
  hooks_.free(hooks_.user, memory, size, alignment);
}

}  // namespace pkv
