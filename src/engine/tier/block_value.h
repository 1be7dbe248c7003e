// What a store has of one block in one layer group: see FORMAT.md. Its size depends on the shape
// alone.
#pragma once

#include "engine/file/pieces.h"
#include "engine/file/tiles.h"
#include "engine/tier/block_keys.h"

namespace pkv::tier {

// Throws OVERFLOW.
uint64_t block_value_bytes(const memory::Group& group);
// Of block number `index` of the run, a full one: all of it but its seal.
void pack_block_value(const kernels::Table& kernels, const file::Run& run, size_t index,
                      const ContentKey& key, std::span<const int32_t> tokens, unsigned char* to);
// Encrypts a packed value where it is, or without a secret adds a checksum. Throws bad_alloc.
void seal_block_value(const memory::Group& group, const ContentKey& key, const Secret& secret,
                      unsigned char* value);
// Decrypts a value where it is and checks it. False: these are not the bytes that were written for
// the key and the tokens. Throws bad_alloc.
bool open_block_value(const memory::Group& group, const ContentKey& key,
                      std::span<const int32_t> tokens, const Secret& secret,
                      std::span<unsigned char> value);
// Keys and values of an opened value, into a block.
void load_block_value(const kernels::Table& kernels, const file::Run& run, size_t index,
                      const unsigned char* value);

}  // namespace pkv::tier
