// What an engine keeps by itself with storage NONE: in each layer group, a number for each slot,
// its mark, which stands for the keys and values of a token.
#pragma once

#include <algorithm>
#include <vector>

#include "../support/cache.h"

namespace cache_test {

class EngineMemory {
 public:
  static constexpr size_t block_size = 16;

  EngineMemory(size_t groups, uint64_t blocks)
      : slabs_(groups, std::vector<uint64_t>(blocks * block_size)) {}

  uint64_t at(uint32_t group, int64_t slot) const {
    return slabs_[group][static_cast<size_t>(slot)];
  }

  // Makes the copies of a step and writes the marks of its new tokens. An aborted step needs no
  // undo: what it wrote lies in its own blocks, or beyond what anybody holds.
  template <class Marks>
  void write(pkv_batch batch, uint32_t group, size_t sessions, const Marks& marks) {
    std::vector<uint64_t>& slab = slabs_[group];
    std::vector<uint32_t> from(sessions), to(sessions);
    size_t copies = 0;
    CHECK(pkv_batch_get_block_copies(batch, group, sessions, from.data(), to.data(), &copies));
    for (size_t i = 0; i < copies; i++)
      std::copy_n(&slab[from[i] * block_size], block_size, &slab[to[i] * block_size]);
    const std::vector<int64_t> slots = slot_mapping(batch, group);
    for (size_t i = 0; i < slots.size(); i++) slab[static_cast<size_t>(slots[i])] = marks[i];
  }

 private:
  std::vector<std::vector<uint64_t>> slabs_;
};

}  // namespace cache_test
