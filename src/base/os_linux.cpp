// The Linux calls behind os.h.
#include <dlfcn.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifdef __aarch64__
#include <asm/hwcap.h>
#endif

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/checked.h"
#include "base/os.h"
#include "base/x86.h"

#if defined(__SANITIZE_THREAD__)
#define PKV_THREAD_SANITIZER
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PKV_THREAD_SANITIZER
#endif
#endif

namespace pkv::os {

namespace {

constexpr size_t huge_page = size_t{2} << 20;

// A size that is too large to be rounded up is returned as it is: mmap() refuses it.
size_t round_to_pages(size_t size, pkv_huge_pages huge_pages) {
  const size_t page =
      huge_pages == PKV_HUGE_PAGES_REQUIRE ? huge_page : static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size > SIZE_MAX - page ? size : round_up(size, page);
}

std::atomic<uint64_t> epoch{0};

// Initializing it registers the handler when the library is loaded.
[[maybe_unused]] const int fork_handler =
    pthread_atfork(nullptr, nullptr, [] { epoch.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

void* map(size_t size, pkv_huge_pages huge_pages, bool* huge) {
  // If huge pages are required, they are reserved at once: with MAP_NORESERVE a missing page would
  // raise SIGBUS at its first use.
  const bool required = huge_pages == PKV_HUGE_PAGES_REQUIRE;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (required ? MAP_HUGETLB : MAP_NORESERVE);
  void* memory =
      mmap(nullptr, round_to_pages(size, huge_pages), PROT_READ | PROT_WRITE, flags, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  *huge = required;
  // The K and V of a large cache would make a core dump as large, and show what users said.
  (void)madvise(memory, round_to_pages(size, huge_pages), MADV_DONTDUMP);
  if (huge_pages == PKV_HUGE_PAGES_ADVISE)
    *huge = madvise(memory, round_to_pages(size, huge_pages), MADV_HUGEPAGE) == 0;
  return memory;
}

void unmap(void* memory, size_t size, pkv_huge_pages huge_pages) {
  munmap(memory, round_to_pages(size, huge_pages));
}

void populate(void* memory, size_t size) {
#ifdef MADV_POPULATE_WRITE
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(memory) + size;
  if (madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_WRITE) == 0) return;
#endif
  // Kernels before 5.14 lack MADV_POPULATE_WRITE: write the first byte of each page back to itself.
  auto* bytes = static_cast<volatile unsigned char*>(memory);
  for (size_t i = 0; i < size; i += 4096) bytes[i] = bytes[i];
}

uint64_t random_number() noexcept {
  uint64_t number = 0;
  if (getrandom(&number, sizeof number, GRND_NONBLOCK) == sizeof number) return number;
  // If a seccomp filter refuses the call, the kernel's random bytes for this process are as secret.
  const auto* const at_start = reinterpret_cast<const void*>(getauxval(AT_RANDOM));
  if (at_start != nullptr) std::memcpy(&number, at_start, sizeof number);
  return number ^
         static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

int fill_random(void* memory, size_t size) noexcept {
  return getrandom(memory, size, 0) == static_cast<ssize_t>(size) ? 0 : errno;
}

void wipe(void* memory, size_t size) noexcept { explicit_bzero(memory, size); }

void lower_priority() {
  // On Linux this sets the priority of only the calling thread. If it is refused, the thread runs
  // at its old priority, which is correct, too.
  (void)setpriority(PRIO_PROCESS, 0, 10);
}

std::chrono::nanoseconds thread_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

uint64_t physical_memory() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page)
                               : UINT64_MAX;
}

unsigned processor_count() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<unsigned>(CPU_COUNT(&set));
  const long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? static_cast<unsigned>(n) : 1;
}

unsigned fast_processor_count() { return processor_count(); }

namespace {

bool membarrier(membarrier_cmd command) { return syscall(SYS_membarrier, command, 0, 0) == 0; }

}  // namespace

bool prepare_process_barrier() {
#ifdef PKV_THREAD_SANITIZER
  return false;
#else
  return membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
         membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
#endif
}

void process_barrier() {
  // A child is registered if its parent was, since Linux copies that at fork(). If another kernel
  // does not, the child registers here.
  if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) || prepare_process_barrier()) return;
  // Since registering, the process has forbidden itself the system call (seccomp). CPUs make their
  // stores visible within microseconds, and all at once at a context switch.
  timespec time{0, 1'000'000};
  while (nanosleep(&time, &time) != 0) {
  }
}

#if defined(__x86_64__)
namespace {

constexpr int tile_data = 18;  // XTILEDATA

}  // namespace

X86Features x86_features() noexcept { return ask_compiler(); }

bool permit_tiles() noexcept {
  constexpr int request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

bool saves_tiles() noexcept {
  constexpr int get_supported = 0x1021;  // ARCH_GET_XCOMP_SUPP
  uint64_t supported = 0;
  return syscall(SYS_arch_prctl, get_supported, &supported) == 0 &&
         (supported >> tile_data & 1) != 0;
}
#elif defined(__aarch64__)
ArmFeatures arm_features() noexcept {
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  return {(first & HWCAP_ASIMDDP) != 0, (second & HWCAP2_BF16) != 0, (second & HWCAP2_I8MM) != 0};
}
#endif

bool at_fork_in_child(void (*function)()) noexcept {
  return pthread_atfork(nullptr, nullptr, function) == 0;
}

void* find_function(const char* name) noexcept { return dlsym(RTLD_DEFAULT, name); }

uint64_t fork_epoch() { return epoch.load(std::memory_order_relaxed); }

}  // namespace pkv::os
