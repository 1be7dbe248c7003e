// A block's name, and all that is known about it in one 64-bit word: a change of any part is a
// single compare-and-swap that checks every other part, the generation first of all.
#pragma once

#include <pagedkv/pool.h>

#include <cstdint>

namespace pkv::memory {

using Block = pkv_block;
// In place of a block that a window group has given back.
inline constexpr Block no_block = ~Block{0};

constexpr uint32_t block_id(Block block) { return static_cast<uint32_t>(block); }
constexpr uint32_t block_generation(Block block) { return static_cast<uint32_t>(block >> 32); }
constexpr Block make_block(uint32_t id, uint32_t generation) {
  return uint64_t{generation} << 32 | id;
}

inline constexpr uint32_t max_block_size = 256;
inline constexpr uint32_t max_references = (uint32_t{1} << 22) - 1;

// Reached when a generation would wrap: the block is out of service for good, and no Block with it
// is ever given out.
inline constexpr uint32_t retired_generation = UINT32_MAX;

struct BlockState {
  uint32_t generation;
  uint32_t references;  // 0: free or retired
  uint32_t filled;      // slots, 0 to block_size
  bool sealed;

  bool operator==(const BlockState&) const = default;
};

// generation:32 | references:22 | sealed:1 | filled:9
constexpr uint64_t pack(const BlockState& state) {
  return uint64_t{state.generation} << 32 | uint64_t{state.references} << 10 |
         uint64_t{state.sealed} << 9 | state.filled;
}

constexpr BlockState unpack(uint64_t word) {
  return {static_cast<uint32_t>(word >> 32), static_cast<uint32_t>(word >> 10) & max_references,
          static_cast<uint32_t>(word) & 511, (word >> 9 & 1) != 0};
}

static_assert(unpack(pack({7, max_references, max_block_size, true})) ==
              BlockState{7, max_references, max_block_size, true});

}  // namespace pkv::memory
