// The handle of a block (id and generation), and the state of a block, packed into one 64-bit word.
// So a single compare-and-swap changes any part of the state and checks that no other part, above
// all the generation, has changed.
#pragma once

#include <pagedkv/pool.h>

#include <cstdint>

namespace pkv::memory {

using Block = pkv_block_ref;
// Entries of block tables without a block: it left the window (no_block), or the caller dropped it
// (dropped_block).
inline constexpr Block no_block = ~Block{0};
inline constexpr Block dropped_block = no_block - (Block{1} << 32);

constexpr uint32_t block_id(Block block) { return static_cast<uint32_t>(block); }
// Returns whether an entry of a block table is a block.
constexpr bool is_block(Block block) { return block_id(block) != PKV_NO_BLOCK_ID; }
constexpr uint32_t block_generation(Block block) { return static_cast<uint32_t>(block >> 32); }
constexpr Block make_block(uint32_t id, uint32_t generation) {
  return uint64_t{generation} << 32 | id;
}

inline constexpr uint32_t max_block_size = 256;
inline constexpr uint32_t max_references = (uint32_t{1} << 22) - 1;

// A block that reaches this generation is never allocated again, since the next generation would
// wrap and make stale handles look current.
inline constexpr uint32_t retired_generation = UINT32_MAX;

struct BlockState {
  uint32_t generation;
  uint32_t references;  // 0 if the block is free or retired
  uint32_t filled;      // number of filled slots, 0 to max_block_size

  bool operator==(const BlockState&) const = default;
};

// The word is generation:32 | references:22 | filled:10.
constexpr uint64_t pack(const BlockState& state) {
  return uint64_t{state.generation} << 32 | uint64_t{state.references} << 10 | state.filled;
}

// The increment that adds one reference to a word.
inline constexpr uint64_t one_reference = uint64_t{1} << 10;

constexpr BlockState unpack(uint64_t word) {
  return {static_cast<uint32_t>(word >> 32), static_cast<uint32_t>(word >> 10) & max_references,
          static_cast<uint32_t>(word) & 1023};
}

static_assert(pack({7, 4, 3}) + one_reference == pack({7, 5, 3}));
static_assert(unpack(pack({7, max_references, max_block_size})) ==
              BlockState{7, max_references, max_block_size});

}  // namespace pkv::memory
