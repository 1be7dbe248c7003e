#include "base/os.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace pkv::os {

namespace {

constexpr size_t huge_page = size_t{2} << 20;

size_t rounded(size_t size, pkv_huge_pages wish) {
  const size_t page =
      wish == PKV_HUGE_PAGES_REQUIRE ? huge_page : static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size > SIZE_MAX - page ? size : (size + page - 1) / page * page;
}

std::atomic<uint64_t> epoch{0};

// Registered once, when the library is loaded.
[[maybe_unused]] const int fork_handler =
    pthread_atfork(nullptr, nullptr, [] { epoch.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

void* map(size_t size, pkv_huge_pages wish, bool* huge) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
                    (wish == PKV_HUGE_PAGES_REQUIRE ? MAP_HUGETLB : 0);
  // MAP_NORESERVE and hugetlbfs do not go together: a page that cannot be had would be a SIGBUS
  // later.
  const int usable = wish == PKV_HUGE_PAGES_REQUIRE ? flags & ~MAP_NORESERVE : flags;
  void* memory = mmap(nullptr, rounded(size, wish), PROT_READ | PROT_WRITE, usable, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  *huge = wish == PKV_HUGE_PAGES_REQUIRE;
  if (wish == PKV_HUGE_PAGES_ADVISE)
    *huge = madvise(memory, rounded(size, wish), MADV_HUGEPAGE) == 0;
  return memory;
}

void unmap(void* memory, size_t size, pkv_huge_pages wish) { munmap(memory, rounded(size, wish)); }

void populate(void* memory, size_t size) {
#ifdef MADV_POPULATE_WRITE
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(memory) + size;
  if (madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_WRITE) == 0) return;
#endif
  // Older kernels: write each page's first byte back to itself.
  auto* bytes = static_cast<volatile unsigned char*>(memory);
  for (size_t i = 0; i < size; i += 4096) bytes[i] = bytes[i];
}

void lower_priority() {
  // Of Linux this is the priority of the thread. A refusal changes nothing that would be wrong.
  (void)setpriority(PRIO_PROCESS, 0, 10);
}

std::chrono::nanoseconds thread_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

unsigned processor_count() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<unsigned>(CPU_COUNT(&set));
  const long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? static_cast<unsigned>(n) : 1;
}

WithoutCancellation::WithoutCancellation() noexcept {
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_);
}
WithoutCancellation::~WithoutCancellation() { pthread_setcancelstate(before_, nullptr); }

uint64_t fork_epoch() { return epoch.load(std::memory_order_relaxed); }

}  // namespace pkv::os
