#include <windows.h>

#include <cstdio>

#include "portable.h"

namespace portable {

uint64_t physical_memory() {
  MEMORYSTATUSEX memory{};
  memory.dwLength = sizeof memory;
  return GlobalMemoryStatusEx(&memory) ? memory.ullTotalPhys : 0;
}

size_t count_descriptors() {
  DWORD count = 0;
  GetProcessHandleCount(GetCurrentProcess(), &count);
  return count;
}

void* map_guarded(size_t size) {
  constexpr size_t page = 4096;
  void* const pages = VirtualAlloc(nullptr, size + page, MEM_RESERVE, PAGE_NOACCESS);
  if (pages == nullptr || VirtualAlloc(pages, size, MEM_COMMIT, PAGE_READWRITE) != nullptr)
    return pages;
  unmap_guarded(pages, size);
  return nullptr;
}
void unmap_guarded(void* memory, size_t) { VirtualFree(memory, 0, MEM_RELEASE); }

std::string make_directory(const std::filesystem::path& parent) {
  static unsigned made = 0;
  for (int attempt = 0; attempt < 1000; attempt++) {
    char name[64];
    std::snprintf(name, sizeof name, "pagedkv-test-%u-%u", static_cast<unsigned>(_getpid()),
                  made++);
    std::error_code error;
    const std::filesystem::path path = parent / name;
    if (std::filesystem::create_directory(path, error)) return path.string();
  }
  return "";
}

}  // namespace portable
