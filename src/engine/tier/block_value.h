// The value that a store keeps for one full block of one layer group: its tokens, K and V,
// protected by a checksum or encrypted. FORMAT.md describes the bytes. All values of a group have
// the same size.
#pragma once

#include "engine/file/pieces.h"
#include "engine/file/tiles.h"
#include "engine/tier/block_keys.h"

namespace pkv::tier {

// Returns the size of a value. Throws OVERFLOW.
uint64_t block_value_bytes(const memory::Group& group);
// Writes the value of the full block number `index` of a run, except what seal_block_value() adds.
void pack_block_value(const kernels::Table& kernels, const file::Run& run, size_t index,
                      const ContentKey& key, std::span<const int32_t> tokens, unsigned char* to);
// Encrypts a packed value in place, or adds a checksum if the secret is empty. Throws bad_alloc.
void seal_block_value(const memory::Group& group, const ContentKey& key, const Secret& secret,
                      unsigned char* value);
// Checks a value and decrypts it in place. Returns false if these are not the bytes that were
// written for this key and these tokens. Throws bad_alloc.
bool open_block_value(const memory::Group& group, const ContentKey& key,
                      std::span<const int32_t> tokens, const Secret& secret,
                      std::span<unsigned char> value);
// Copies K and V of an opened value into block number `index` of a run.
void load_block_value(const kernels::Table& kernels, const file::Run& run, size_t index,
                      const unsigned char* value);

}  // namespace pkv::tier
