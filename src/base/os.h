// Calls of the operating system besides files: memory pages, CPUs and threads, and fork().
#pragma once

#include <pagedkv/cache.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace pkv::os {

// Maps `size` bytes of zeroed memory, rounded up to whole pages; size > 0. Core dumps leave it out.
// Returns nullptr if the system refuses. Sets *huge to whether the memory has huge pages, or may
// get them.
void* map(size_t size, pkv_huge_pages huge_pages, bool* huge);

// Undoes map() with the same size and huge_pages.
void unmap(void* memory, size_t size, pkv_huge_pages huge_pages);

// Makes the system back [memory, memory + size) with pages now, without changing a byte.
void populate(void* memory, size_t size);

// Returns a number that nobody outside this process can guess.
uint64_t random_number() noexcept;
// Fills memory with random bytes of the system. Returns 0, or an errno.
int fill_random(void* memory, size_t size) noexcept;

// Overwrites secret bytes with zeros, even if nothing reads them afterwards.
void wipe(void* memory, size_t size) noexcept;

// The machine's memory in bytes.
uint64_t physical_memory();

// The number of CPUs that this process may run on.
unsigned processor_count();
// The number of those that are about equally fast: without the efficiency cores of a Mac, for which
// the others would wait at the end of each step.
unsigned fast_processor_count();

// Lowers the priority of this thread: while other threads want a CPU, it gets about a tenth of one.
void lower_priority();

// A small number that no other thread of this process has or had.
inline uint32_t thread_number() noexcept {
  static constinit std::atomic<uint32_t> threads{0};
  static constinit thread_local uint32_t number = 0;  // 0: not assigned yet
  if (number == 0) number = threads.fetch_add(1, std::memory_order_relaxed) + 1;
  return number;
}

// The CPU time that this thread has used.
std::chrono::nanoseconds thread_time();

// Asks the system for what process_barrier() needs. Returns false if the system refuses, and under
// ThreadSanitizer, which does not see such barriers.
bool prepare_process_barrier();

// Makes each thread of this process execute a memory barrier now: the calling thread sees all that
// they stored before, and they see all that it stored. prepare_process_barrier() must have returned
// true.
void process_barrier();

// Asks the system to let this process use tile registers (AMX), which it saves only on request. The
// permission holds for all threads, and for children of fork(). It raises the minimum size of
// signal stacks, so it is only requested if tile registers are used.
bool permit_tiles() noexcept;
// Whether the system can save tile registers, so that it may permit them. Asks for nothing.
bool saves_tiles() noexcept;

// Instructions of this CPU beyond those of every x86-64, if the system saves their registers.
struct X86Features {
  bool avx;
  bool avx2;      // with FMA and F16C
  bool avx_vnni;  // VNNI without AVX-512
  bool avx512f;
  bool avx512;      // also CD, DQ, BW and VL
  bool vnni, bf16;  // of AVX-512
  bool vbmi;        // with IFMA
  bool intel;       // made by Intel
};
X86Features x86_features() noexcept;

// Instructions of this CPU beyond those of every 64-bit Arm.
struct ArmFeatures {
  bool dot_products, bf16, int8_products;
};
ArmFeatures arm_features() noexcept;

// A number that rises by one in the child at each fork(). An object that was made in another epoch
// was inherited from the parent.
uint64_t fork_epoch();

// Lets each forked child call a function. Returns false if the system refuses.
bool at_fork_in_child(void (*function)()) noexcept;

// Returns the address of a function that the process has loaded, or nullptr.
void* find_function(const char* name) noexcept;

// Remembers the first process that used a dependency with threads. A forked child cannot use it:
// the child does not have the threads, and they may have held locks at the fork.
class FirstProcess {
 public:
  // Returns false if an ancestor of this process used the dependency before the fork.
  bool claim() {
    const uint64_t now = fork_epoch() + 1;
    uint64_t before = 0;
    return epoch_.compare_exchange_strong(before, now, std::memory_order_relaxed) || before == now;
  }

 private:
  std::atomic<uint64_t> epoch_{0};  // the fork epoch of that process, plus 1; 0 while there is none
};

}  // namespace pkv::os
