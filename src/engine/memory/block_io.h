// Copies between the memory of the library and blocks that only the engine can reach: those of
// opaque groups (group.h). The caller's hooks do that and may take as long as a device does, so no
// lock may be held meanwhile.
#pragma once

#include <span>
#include <vector>

#include "base/count.h"
#include "engine/memory/group.h"

namespace pkv::memory {

class BlockIo {
 public:
  // The memory outlives the object.
  BlockIo(const pkv_block_io& hooks, HookMemory& memory, size_t groups)
      : hooks_(hooks), memory_(memory), moving_(groups) {}

  struct Copy {
    uint32_t id;
    uint32_t tokens;       // that the block holds; not for write()
    unsigned char* bytes;  // in the library's memory, as many as a block of the group has
  };
  // Copy blocks of a group to or from the library's memory, in one call of a hook. A block that is
  // read twice, for texts that have different tokens of it, takes two calls. Throw IO if a hook
  // fails, bad_alloc.
  void read(uint32_t index, const Group& group, std::span<const Copy> copies);
  void write(uint32_t index, const Group& group, std::span<const Copy> copies);

  // Returns how many blocks of a group are being copied now.
  uint64_t moving(size_t index) const { return moving_[index]; }
  // Returns how many calls of the hooks failed.
  uint64_t failures() const { return failures_; }

 private:
  void read_once(uint32_t index, const Group& group, std::span<const Copy> copies);
  template <class Call>
  void call(const char* name, uint32_t index, size_t n, const Call& hook);

  const pkv_block_io hooks_;
  HookMemory& memory_;
  std::vector<Count> moving_;  // by group
  Count failures_;
};

}  // namespace pkv::memory
