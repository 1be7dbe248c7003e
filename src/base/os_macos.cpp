// The macOS calls behind os.h.
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysctl.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "base/os.h"

namespace pkv::os {

namespace {

std::atomic<uint64_t> epoch{0};

// Initializing it registers the handler when the library is loaded.
[[maybe_unused]] const int fork_handler =
    pthread_atfork(nullptr, nullptr, [] { epoch.fetch_add(1, std::memory_order_relaxed); });

// The library stays loaded, because its threads may outlive dlclose(). (On Linux the linker's
// option nodelete does that.)
[[maybe_unused]] const bool pinned = [] {
  static const char here = 0;
  Dl_info library;
  return dladdr(&here, &library) != 0 &&
         dlopen(library.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE) != nullptr;
}();

// Returns a number that the system knows under this name, or 0.
uint64_t ask(const char* name) noexcept {
  uint64_t number = 0;  // some are shorter; the byte order is little-endian
  size_t size = sizeof number;
  return sysctlbyname(name, &number, &size, nullptr, 0) == 0 ? number : 0;
}

}  // namespace

void* map(size_t size, pkv_huge_pages huge_pages, bool* huge) {
  *huge = false;
  if (huge_pages == PKV_HUGE_PAGES_REQUIRE) return nullptr;  // Apple's CPUs have none
  constexpr int flags = MAP_PRIVATE | MAP_ANON | MAP_NORESERVE;
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

void unmap(void* memory, size_t size, pkv_huge_pages) { munmap(memory, size); }

void populate(void* memory, size_t size) {
  auto* bytes = static_cast<volatile unsigned char*>(memory);
  for (size_t i = 0; i < size; i += 4096) bytes[i] = bytes[i];
}

uint64_t random_number() noexcept {
  uint64_t number;
  arc4random_buf(&number, sizeof number);
  return number;
}

int fill_random(void* memory, size_t size) noexcept {
  arc4random_buf(memory, size);
  return 0;
}

void wipe(void* memory, size_t size) noexcept {
  memset(memory, 0, size);
  asm volatile("" : : "r"(memory) : "memory");  // as if this read them
}

void lower_priority() { (void)pthread_set_qos_class_self_np(QOS_CLASS_UTILITY, 0); }

std::chrono::nanoseconds thread_time() {
  return std::chrono::nanoseconds(clock_gettime_nsec_np(CLOCK_THREAD_CPUTIME_ID));
}

uint64_t physical_memory() {
  const uint64_t bytes = ask("hw.memsize");
  return bytes != 0 ? bytes : UINT64_MAX;
}

unsigned processor_count() {
  const uint64_t n = ask("hw.logicalcpu");
  return n != 0 ? static_cast<unsigned>(n) : 1;
}

unsigned fast_processor_count() {
  // Level 0 is the fastest. Systems before macOS 12 do not tell the levels apart.
  const uint64_t n = ask("hw.nperflevels") > 1 ? ask("hw.perflevel0.logicalcpu") : 0;
  return n != 0 ? static_cast<unsigned>(n) : processor_count();
}

// There is no such barrier for all threads, so threads use one each.
bool prepare_process_barrier() { return false; }
void process_barrier() {}

#if defined(__x86_64__)
// macOS gives a thread the registers of AVX-512 at its first use, so XCR0, which compilers read,
// does not show them. Macs have no AVX-VNNI and no AMX.
X86Features x86_features() noexcept {
  static const X86Features found = [] {
    unsigned a, b = 0, c = 0, d;
    (void)__get_cpuid_count(7, 0, &a, &b, &c, &d);
    X86Features features{};
    features.avx = ask("hw.optional.avx1_0") != 0;
    features.avx2 = features.avx && ask("hw.optional.avx2_0") != 0 && ask("hw.optional.fma") != 0 &&
                    ask("hw.optional.f16c") != 0;
    features.avx512f = ask("hw.optional.avx512f") != 0;
    features.avx512 = features.avx512f && ask("hw.optional.avx512cd") != 0 &&
                      ask("hw.optional.avx512dq") != 0 && ask("hw.optional.avx512bw") != 0 &&
                      ask("hw.optional.avx512vl") != 0;
    features.vnni = features.avx512 && (c & bit_AVX512VNNI) != 0;
    features.vbmi = features.avx512 && (c & bit_AVX512VBMI) != 0 && (b & bit_AVX512IFMA) != 0;
    features.intel = true;
    return features;
  }();
  return found;
}

bool permit_tiles() noexcept { return false; }
bool saves_tiles() noexcept { return false; }
#elif defined(__aarch64__)
ArmFeatures arm_features() noexcept {
  return {ask("hw.optional.arm.FEAT_DotProd") != 0, ask("hw.optional.arm.FEAT_BF16") != 0,
          ask("hw.optional.arm.FEAT_I8MM") != 0};
}
#endif

uint64_t fork_epoch() { return epoch.load(std::memory_order_relaxed); }

bool at_fork_in_child(void (*function)()) noexcept {
  return pthread_atfork(nullptr, nullptr, function) == 0;
}

void* find_function(const char* name) noexcept { return dlsym(RTLD_DEFAULT, name); }

}  // namespace pkv::os
