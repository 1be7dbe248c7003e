// Remembers the history of evicted blocks, so that a block that is cached again gets its history
// back.
#pragma once

#include <algorithm>
#include <array>

#include "engine/prefix/tree.h"

namespace pkv::prefix {

// Remembers how evicted blocks were used, in sets of which the oldest is forgotten.
class Ghosts {
 public:
  Ghosts(uint64_t capacity, std::pmr::memory_resource& memory)
      : sets_(std::min(capacity * per_block / ways, max_sets)), table_(&memory) {}
  void remember(uint64_t hash, History history) noexcept;
  // Returns the history of a block that is cached again, and forgets it.
  History recall(uint64_t hash) noexcept;
  void prefetch(uint64_t hash) const noexcept {
    if (!table_.empty()) __builtin_prefetch(&table_[set(hash)]);
  }

 private:
  using Ghost = uint32_t;  // tag:22 | turn:5 | uses:5, the newest first; 0: none
  static constexpr size_t ways = 8, per_block = 16;
  size_t set(uint64_t hash) const { return static_cast<size_t>((hash >> 32) * sets_ >> 32); }

  static constexpr uint64_t max_sets = uint64_t{1} << 32;
  const uint64_t sets_;
  // It is allocated when the first block is evicted, since a cache that is never full needs none.
  std::pmr::vector<std::array<Ghost, ways>> table_;
};

}  // namespace pkv::prefix
