// Remembers how evicted blocks were used, so that a block that is cached again gets its history
// back. The table has sets of a few blocks; a full set forgets its oldest block.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "engine/prefix/tree.h"

namespace pkv::prefix {

class Ghosts {
 public:
  Ghosts(uint64_t capacity, std::pmr::memory_resource& memory)
      : sets_(std::min(capacity * per_block / ways, max_sets)), table_(&memory) {}

  void remember(uint64_t hash, History history) noexcept {
    if (table_.empty()) {
      try {
        table_.resize(sets_);
      } catch (const std::bad_alloc&) {
        return;
      }
    }
    auto& ghosts = table_[set(hash)];
    for (size_t i = ways - 1; i > 0; i--) ghosts[i] = ghosts[i - 1];
    ghosts[0] = tag_of(hash) | uint32_t{history.turn} << 5 | history.uses;
  }
  // Returns the history of a block that is cached again, and forgets it.
  History recall(uint64_t hash) noexcept {
    if (table_.empty()) return {};
    auto& ghosts = table_[set(hash)];
    size_t place = ways;
    for (size_t i = ways; i-- > 0;)
      // The compiler makes this free of branches, since there is nearly always no ghost.
      if ((ghosts[i] ^ tag_of(hash)) >> 10 == 0 && ghosts[i] != 0) place = i;
    if (place == ways) return {};
    const Ghost ghost = std::exchange(ghosts[place], 0);
    return {static_cast<uint8_t>(ghost & 31), static_cast<uint8_t>(ghost >> 5 & 31)};
  }
  void prefetch(uint64_t hash) const noexcept {
    if (!table_.empty()) __builtin_prefetch(&table_[set(hash)]);
  }

 private:
  using Ghost = uint32_t;  // tag:22 | turn:5 | uses:5, the newest first; 0: none
  static constexpr size_t ways = 8, per_block = 16;
  static constexpr uint64_t max_sets = uint64_t{1} << 32;
  size_t set(uint64_t hash) const { return static_cast<size_t>((hash >> 32) * sets_ >> 32); }
  static Ghost tag_of(uint64_t hash) { return static_cast<Ghost>(hash << 10); }

  const uint64_t sets_;
  // It is allocated when the first block is evicted, since a cache that is never full needs none.
  std::pmr::vector<std::array<Ghost, ways>> table_;
};

}  // namespace pkv::prefix
