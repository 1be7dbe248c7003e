// What a store has of one block in one layer group: see FORMAT.md. Its size depends on the shape alone.
#pragma once

#include "engine/store/block_keys.h"
#include "engine/store/pieces.h"
#include "engine/store/tiles.h"

namespace pkv {

// Throws OVERFLOW.
uint64_t block_value_bytes(const Group& group);
// Of block number `index` of the run, a full one.
void write_block_value(const Kernels& kernels, const Run& run, size_t index, const ContentKey& key, std::span<const int32_t> tokens, Tagger tagger,
                       unsigned char* to);
// False: these are not the bytes that were written for the key and the tokens.
bool check_block_value(const Group& group, const ContentKey& key, std::span<const int32_t> tokens, Tagger tagger, std::span<const unsigned char> value);
// Keys and values of a checked value, into a block.
void load_block_value(const Kernels& kernels, const Run& run, size_t index, const unsigned char* value);

}  // namespace pkv
