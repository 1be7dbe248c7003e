// Copies keys and values between a cache and the tiles of a file or an item. There they are in the
// order of PKV_LAYOUT_PACKED: for each 16 tokens all layers of a group, for each layer all KV
// heads. So a tile of a packed cache is copied unchanged, and other layouts and dtypes are
// converted. A group of states has one tile for each block of tokens and layer: the state. An
// opaque group has one for each block: its bytes, which only hooks can copy (memory/block_io.h).
#pragma once

#include <span>

#include "engine/memory/group.h"
#include "kernels/kernels.h"

namespace pkv::file {

// Returns how many tokens a tile of a group stands for.
uint64_t saved_tile_tokens(const memory::Shape& shape, uint64_t block_size);
// Returns how many tiles these tokens have: one for each layer, or one for all.
uint32_t saved_tile_layers(const memory::Shape& shape);
// Return the bytes of a tile in one layer, and in all layers of the group. Both throw OVERFLOW.
uint64_t saved_layer_bytes(const memory::Shape& shape);
uint64_t saved_tile_bytes(const memory::Shape& shape);

// Where the keys and values of consecutive positions are in a cache.
struct Run {
  const memory::Group* group;
  std::span<const uint32_t> ids;  // the blocks of positions from 0 on
  kernels::KvView view(uint32_t layer) const;
  // The state in the block of a position, of a group of states.
  unsigned char* state(uint32_t layer, uint64_t position) const;
};

// Returns whether K and V of one shape can be loaded into another: if the dtypes are the same, or
// are all among F32, F16 and BF16.
bool convertible(const memory::Shape& from, const memory::Shape& to);

// Copy one layer of a tile, which begins at `position` and has `tokens`, to and from the bytes of a
// file. There slots without a token are 0.
void save_tile(const kernels::Table& kernels, const Run& run, uint32_t layer, uint64_t position,
               uint32_t tokens, unsigned char* to);
void load_tile(const kernels::Table& kernels, const Run& run, uint32_t layer, uint64_t position,
               uint32_t tokens, const memory::Shape& saved, const unsigned char* from);

}  // namespace pkv::file
