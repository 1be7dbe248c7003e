// Maps files that disappear when they are closed, and has the system read them ahead.
#include <cerrno>
#include <cstdio>
#include <string>

#include "base/checked.h"
#include "base/directory.h"
#include "base/file_memory.h"
#include "base/temporary_file.h"
#include "base/windows.h"

namespace pkv::os {

void* map_file(const char* directory, size_t size) {
  const std::string path = directory;
  const Directory parent =
      Directory::open(path, Links::refuse, "memory_directory: cannot open", path);
  const std::string name = path + '\\' + random_name(path);
  PrivateSecurity security;
  const Handle file(CreateFileW(wide_path(name).c_str(), GENERIC_READ | GENERIC_WRITE | DELETE, 0,
                                security.get(), CREATE_NEW,
                                FILE_ATTRIBUTE_TEMPORARY | FILE_FLAG_DELETE_ON_CLOSE, nullptr));
  if (!file) fail_io("memory_directory: cannot create a file in", path, errno_of());
  // The mapping makes the file this long, which takes its room, and keeps it until it is unmapped.
  const HANDLE mapping =
      CreateFileMappingW(file.get(), nullptr, PAGE_READWRITE, static_cast<DWORD>(size >> 32),
                         static_cast<DWORD>(size), nullptr);
  if (mapping == nullptr) {
    char sentence[96];
    std::snprintf(sentence, sizeof sentence, "memory_directory: cannot take %zu bytes in", size);
    fail_io(sentence, path, errno_of());
  }
  void* const memory = MapViewOfFile(mapping, FILE_MAP_READ | FILE_MAP_WRITE, 0, 0, size);
  const int error = errno_of();
  CloseHandle(mapping);
  if (memory == nullptr) fail_io("memory_directory: cannot map a file in", path, error);
  return memory;
}

void unmap_file(void* memory, size_t) { UnmapViewOfFile(memory); }

void read_ahead(const void* memory, size_t size) {
  // A refusal costs only time: what is not read ahead is read when it is used.
  WIN32_MEMORY_RANGE_ENTRY range{const_cast<void*>(memory), size};
  (void)PrefetchVirtualMemory(GetCurrentProcess(), 1, &range, 0);
}

}  // namespace pkv::os
