// Keys and values in a file, and in and out of a cache: tiles of 16 tokens in the packed order of
// PKV_LAYOUT_PACKED, for 16 tokens all layers of a group, of a layer all KV heads. So a block of 16
// tokens of a packed cache is copied as it lies, whatever else is converted.
#pragma once

#include <span>

#include "engine/memory/sequence.h"
#include "kernels/kernels.h"

namespace pkv::file {

// 16 tokens of one layer, and of all. Throws OVERFLOW.
uint64_t saved_layer_bytes(const memory::Shape& shape);
uint64_t saved_tile_bytes(const memory::Shape& shape);

// Where the keys and values of a run of positions are in a cache: in blocks, or in the tensors of a
// sequence.
struct Run {
  const memory::Group* group;
  std::span<const uint32_t> ids;  // of positions [0, ids.size() * block size); empty: see sequence
  const memory::Sequence* sequence = nullptr;
  kernels::KvView view(uint32_t layer) const;
};

// True if rows of these types can be made from rows of the others: the same types, or F32, F16 and
// BF16.
bool convertible(const memory::Shape& from, const memory::Shape& to);

// One layer of up to 16 tokens from `position` on, a multiple of 16, to and from bytes of a file;
// slots without a token are 0 there.
void save_tile(const kernels::Table& kernels, const Run& run, uint32_t layer, uint64_t position,
               uint32_t tokens, unsigned char* to);
void load_tile(const kernels::Table& kernels, const Run& run, uint32_t layer, uint64_t position,
               uint32_t tokens, const memory::Shape& saved, const unsigned char* from);

}  // namespace pkv::file
