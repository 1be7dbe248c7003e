// What tests need of the system, which Windows has under other names. portable_windows.cpp has the
// rest of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string>

#ifdef _WIN32
#include <process.h>
#else
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace portable {

// The first line of tests that fork.
#ifdef _WIN32
#define SKIP_WITHOUT_FORK() GTEST_SKIP() << "Windows has no fork()"
#else
#define SKIP_WITHOUT_FORK() static_cast<void>(0)
#endif

#ifdef _WIN32

// Precedes each block.
struct Allocation {
  void* begin;
  size_t size;
};

inline void* allocate_aligned(size_t alignment, size_t size) {
  const size_t more = alignment + sizeof(Allocation);
  void* const begin = size > SIZE_MAX - more ? nullptr : std::malloc(size + more);
  if (begin == nullptr) return nullptr;
  const uintptr_t end = reinterpret_cast<uintptr_t>(begin) + more;
  void* const block = reinterpret_cast<void*>(end / alignment * alignment);
  static_cast<Allocation*>(block)[-1] = {begin, size};
  return block;
}
inline size_t usable_size(void* memory) { return static_cast<Allocation*>(memory)[-1].size; }
inline void free_aligned(void* memory) {
  if (memory != nullptr) std::free(static_cast<Allocation*>(memory)[-1].begin);
}

inline int process_id() { return _getpid(); }
uint64_t physical_memory();
// The handles that this process has open.
size_t count_descriptors();

// Maps pages of zeros, followed by an inaccessible one. Returns nullptr if the system refuses.
void* map_guarded(size_t size);
void unmap_guarded(void* memory, size_t size);

inline std::filesystem::path temporary_directory() {
  return std::filesystem::temp_directory_path();
}
// Makes an empty directory that nobody else has. Returns "" if the system refuses.
std::string make_directory(const std::filesystem::path& parent);

#else

// Memory that free_aligned() frees. The size is a multiple of the alignment.
inline void* allocate_aligned(size_t alignment, size_t size) {
  return std::aligned_alloc(alignment, size);
}
inline void free_aligned(void* memory) { std::free(memory); }
inline size_t usable_size(void* memory) { return malloc_usable_size(memory); }

inline int process_id() { return getpid(); }
inline uint64_t physical_memory() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}
// The descriptors that this process has open.
inline size_t count_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

constexpr size_t page = 4096;

// Maps pages of zeros, followed by an inaccessible one. Returns nullptr if the system refuses.
inline void* map_guarded(size_t size) {
  void* const pages = mmap(nullptr, size + page, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  if (mprotect(static_cast<char*>(pages) + size, page, PROT_NONE) == 0) return pages;
  munmap(pages, size + page);
  return nullptr;
}
inline void unmap_guarded(void* memory, size_t size) { munmap(memory, size + page); }

inline std::filesystem::path temporary_directory() { return "/tmp"; }
// Makes an empty directory that nobody else has. Returns "" if the system refuses.
inline std::string make_directory(const std::filesystem::path& parent) {
  std::string name = parent / "pagedkv-test-XXXXXX";
  return mkdtemp(name.data()) != nullptr ? name : "";
}

#endif

}  // namespace portable
