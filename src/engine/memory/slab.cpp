// Allocates and frees a slab, from the system or from the caller's allocator.
#include "engine/memory/slab.h"

#include "base/file_memory.h"
#include "base/status.h"
#include "engine/memory/layout.h"

namespace pkv::memory {

Slab::Slab(uint64_t size, HookMemory& memory, pkv_huge_pages huge_pages,
           const std::string& directory)
    : size_(size), memory_(memory), huge_pages_(huge_pages), in_file_(!directory.empty()) {
  if (in_file_)
    data_ = static_cast<unsigned char*>(os::map_file(directory.c_str(), size));
  else if (memory.is_system())
    data_ = static_cast<unsigned char*>(os::map(size, huge_pages_, &huge_));
  else
    data_ = static_cast<unsigned char*>(memory.allocate(size, storage_alignment));
  if (data_ == nullptr)
    fail(PKV_OUT_OF_MEMORY, "the system refused %llu bytes for keys and values%s", llu(size),
         huge_pages_ == PKV_HUGE_PAGES_REQUIRE ? " in reserved huge pages" : "");
}

Slab::~Slab() {
  if (in_file_)
    os::unmap_file(data_, size_);
  else if (memory_.is_system())
    os::unmap(data_, size_, huge_pages_);
  else
    memory_.deallocate(data_, size_, storage_alignment);
}

}  // namespace pkv::memory
