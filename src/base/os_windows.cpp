// The Windows calls behind os.h. There is no fork(): the epoch stays 0.
#include "base/os.h"
#include "base/windows.h"
#include "base/x86.h"
// After windows.h.
#include <bcrypt.h>
#include <psapi.h>

#include <bit>
#include <cerrno>

namespace pkv::os {

namespace {

// The library stays loaded, because its threads may outlive FreeLibrary(). (On Linux the linker's
// option nodelete does that.)
[[maybe_unused]] const BOOL pinned = [] {
  static const char here = 0;
  HMODULE module;
  return GetModuleHandleExA(GET_MODULE_HANDLE_EX_FLAG_PIN | GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS,
                            &here, &module);
}();

size_t round_to_pages(size_t size, size_t page) {
  return size > SIZE_MAX - page ? size : (size + page - 1) / page * page;
}

}  // namespace

void* map(size_t size, pkv_huge_pages huge_pages, bool* huge) {
  constexpr DWORD now = MEM_RESERVE | MEM_COMMIT;
  // Large pages need the privilege SeLockMemoryPrivilege, and are never given by themselves.
  *huge = huge_pages == PKV_HUGE_PAGES_REQUIRE;
  if (!*huge) return VirtualAlloc(nullptr, size, now, PAGE_READWRITE);
  const size_t page = GetLargePageMinimum();
  if (page == 0) return nullptr;
  return VirtualAlloc(nullptr, round_to_pages(size, page), now | MEM_LARGE_PAGES, PAGE_READWRITE);
}

void unmap(void* memory, size_t, pkv_huge_pages) { VirtualFree(memory, 0, MEM_RELEASE); }

void populate(void* memory, size_t size) {
  auto* bytes = static_cast<volatile unsigned char*>(memory);
  for (size_t i = 0; i < size; i += 4096) bytes[i] = bytes[i];
}

int fill_random(void* memory, size_t size) noexcept {
  const auto status = BCryptGenRandom(nullptr, static_cast<unsigned char*>(memory),
                                      static_cast<ULONG>(size), BCRYPT_USE_SYSTEM_PREFERRED_RNG);
  return status == 0 ? 0 : EIO;
}

uint64_t random_number() noexcept {
  uint64_t number = 0;
  (void)fill_random(&number, sizeof number);
  return number ^
         static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

void wipe(void* memory, size_t size) noexcept { SecureZeroMemory(memory, size); }

void lower_priority() { (void)SetThreadPriority(GetCurrentThread(), THREAD_PRIORITY_LOWEST); }

std::chrono::nanoseconds thread_time() {
  FILETIME begin, end, kernel{}, user{};
  GetThreadTimes(GetCurrentThread(), &begin, &end, &kernel, &user);
  const auto hundreds = [](const FILETIME& time) {
    return uint64_t{time.dwHighDateTime} << 32 | time.dwLowDateTime;
  };
  return std::chrono::nanoseconds(100 * (hundreds(kernel) + hundreds(user)));
}

uint64_t physical_memory() {
  MEMORYSTATUSEX memory{};
  memory.dwLength = sizeof memory;
  return GlobalMemoryStatusEx(&memory) ? memory.ullTotalPhys : UINT64_MAX;
}

unsigned processor_count() {
  DWORD_PTR own = 0, all = 0;
  if (GetProcessAffinityMask(GetCurrentProcess(), &own, &all) && own != 0)
    return static_cast<unsigned>(std::popcount(own));
  // A process in several groups of processors, of which each has up to 64.
  return GetActiveProcessorCount(ALL_PROCESSOR_GROUPS);
}

unsigned fast_processor_count() { return processor_count(); }

bool prepare_process_barrier() { return true; }
void process_barrier() { FlushProcessWriteBuffers(); }

X86Features x86_features() noexcept { return ask_compiler(); }

// Windows lets every process use the tile registers that it can save.
bool permit_tiles() noexcept { return saves_tiles(); }
bool saves_tiles() noexcept {
  constexpr DWORD64 tile_data = uint64_t{1} << 18;
  return (GetEnabledXStateFeatures() & tile_data) != 0;
}

uint64_t fork_epoch() { return 0; }
bool at_fork_in_child(void (*)()) noexcept { return true; }

void* find_function(const char* name) noexcept {
  HMODULE modules[512];
  DWORD bytes = 0;
  if (!K32EnumProcessModules(GetCurrentProcess(), modules, sizeof modules, &bytes)) return nullptr;
  const size_t count = (bytes < sizeof modules ? bytes : sizeof modules) / sizeof(HMODULE);
  for (size_t i = 0; i < count; i++)
    if (const FARPROC found = GetProcAddress(modules[i], name); found != nullptr)
      return reinterpret_cast<void*>(found);
  return nullptr;
}

}  // namespace pkv::os
