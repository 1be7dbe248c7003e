// The operating system, all of it: pages, processors, fork.
#pragma once

#include <pagedkv/cache.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace pkv::os {

// Maps size bytes of zeroed memory (rounded up to whole pages). Returns nullptr where the system
// refuses. *huge tells whether the wish was granted. size > 0.
void* map(size_t size, pkv_huge_pages wish, bool* huge);

// Undoes map() of the same size and wish.
void unmap(void* memory, size_t size, pkv_huge_pages wish);

// Makes the pages of [memory, memory + size) present without changing a byte.
void populate(void* memory, size_t size);

unsigned processor_count();

// This thread leaves the processors to others that want them, but for about a tenth of one.
void lower_priority();

// What this thread has had of the processors.
std::chrono::nanoseconds thread_time();

// While it lives pthread_cancel() of this thread waits: a call is done or not begun, never in
// between.
class WithoutCancellation {
 public:
  WithoutCancellation() noexcept;
  ~WithoutCancellation();
  WithoutCancellation(const WithoutCancellation&) = delete;
  WithoutCancellation& operator=(const WithoutCancellation&) = delete;

 private:
  int before_;
};

// Rises by one in the child at each fork(): an object made under another epoch was inherited.
uint64_t fork_epoch();

}  // namespace pkv::os
