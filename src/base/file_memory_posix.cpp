// Maps unnamed files, and has the system read them ahead.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <string>

#include "base/checked.h"
#include "base/file_memory.h"
#include "base/posix.h"
#include "base/temporary_file.h"

namespace pkv::os {

namespace {

// Whether the file's device has room for this size; true if the device does not report it.
bool has_room(const File& file, size_t size) {
  struct statvfs all;
  if (fstatvfs(file.descriptor(), &all) != 0 || all.f_blocks == 0) return true;
  const uint64_t free = geteuid() == 0 ? all.f_bfree : all.f_bavail;  // some is reserved for root
  return ceil_div(size, all.f_frsize) <= free;
}

// Takes all of a file's room at once, or a later write could raise SIGBUS. A device with too little
// room is asked first, since a failing allocation would fill it for a moment.
void take_room(File& file, size_t size) {
  const int error = has_room(file, size) ? file.allocate(size) : ENOSPC;
  if (error == 0) return;
  char sentence[96];
  std::snprintf(sentence, sizeof sentence, "memory_directory: cannot take %zu bytes in", size);
  fail_io(sentence, file.name(), error);
}

}  // namespace

void* map_file(const char* directory, size_t size) {
  const Directory parent =
      Directory::open(directory, Links::refuse, "memory_directory: cannot open", directory);
  TemporaryFile temporary(parent, parent.path());
  const int descriptor = temporary.file().descriptor();
  take_room(temporary.file(), size);
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) fail_io("memory_directory: cannot map a file in", parent.path(), errno);
  // A child would see its parent's writes and keep the file's room taken after the parent has
  // ended; a dump would copy the file.
  keep_in_process(memory, size);
  return memory;
}

void unmap_file(void* memory, size_t size) { munmap(memory, size); }

void read_ahead(const void* memory, size_t size) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory) / page * page;
  // A refusal costs only time: what is not read ahead is read when it is used.
  (void)madvise(reinterpret_cast<void*>(begin), reinterpret_cast<uintptr_t>(memory) + size - begin,
                MADV_WILLNEED);
}

}  // namespace pkv::os
