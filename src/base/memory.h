// All memory of an object comes from one std::pmr::memory_resource: the caller's allocator hooks,
// or the system's.
#pragma once

#include <pagedkv/common.h>

#include <memory_resource>
#include <new>

namespace pkv {

// A hook gave memory that is not aligned as it was asked to be. A kind of bad_alloc, so that
// whoever can go on without memory goes on here, too.
class Misaligned : public std::bad_alloc {
 public:
  Misaligned(const void* memory, size_t alignment) noexcept;
  const char* what() const noexcept override { return text_; }

 private:
  char text_[128];
};

// True while this thread is inside one of the caller's hooks; the C boundary refuses calls then
// (PKV_REENTRANT).
bool in_hook();

class HookScope {
 public:
  HookScope();
  ~HookScope();
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;
};

// The caller's allocator as a memory resource; throws std::bad_alloc where a hook gives NULL,
// Misaligned.
class HookMemory final : public std::pmr::memory_resource {
 public:
  // allocator may be NULL: operator new and delete.
  explicit HookMemory(const pkv_allocator* allocator);
  bool is_system() const { return hooks_.alloc == nullptr; }

 private:
  void* do_allocate(size_t size, size_t alignment) override;
  void do_deallocate(void* memory, size_t size, size_t alignment) override;
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  pkv_allocator hooks_{};
};

}  // namespace pkv
