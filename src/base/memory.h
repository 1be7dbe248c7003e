// The memory of a cache or a pool as a std::pmr::memory_resource: it comes from the caller's
// allocator hooks (pkv_allocator), or from operator new.
#pragma once

#include <pagedkv/common.h>

#include <memory_resource>
#include <new>

namespace pkv {

// Thrown when a hook returned memory that is not aligned as requested. It is a bad_alloc, so code
// that can continue without memory handles it, too.
class Misaligned : public std::bad_alloc {
 public:
  Misaligned(const void* memory, size_t alignment) noexcept;
  const char* what() const noexcept override { return text_; }

 private:
  char text_[128];
};

// True while this thread is inside one of the caller's hooks. Meanwhile the C boundary refuses
// calls (PKV_REENTRANT).
bool in_hook();

// Makes in_hook() true while it lives.
class HookScope {
 public:
  HookScope();
  ~HookScope();
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;
};

// The caller's allocator as a memory resource. Allocating throws std::bad_alloc if the hook returns
// NULL, and Misaligned if it returns misaligned memory.
class HookMemory final : public std::pmr::memory_resource {
 public:
  // If allocator is NULL, operator new and delete are used.
  explicit HookMemory(const pkv_allocator* allocator);
  bool is_system() const { return hooks_.alloc == nullptr; }

 private:
  void* do_allocate(size_t size, size_t alignment) override;
  void do_deallocate(void* memory, size_t size, size_t alignment) override;
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  pkv_allocator hooks_{};
};

}  // namespace pkv
