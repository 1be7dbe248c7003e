// Names of blocks by what they hold: BLAKE2b-256 over the model, the salt and all tokens up to the end of the block. No two texts have one
// name, whoever chooses them; with a key nobody else can tell what a name stands for.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/store/format.h"

namespace pkv {

using ContentKey = std::array<unsigned char, 32>;
using SecretKey = std::vector<unsigned char>;  // 16 to 64 bytes, or none

// The part of the name that all blocks of a cache have in common. Throws UNSUPPORTED in a build without libsodium.
ContentKey hash_model(uint32_t block_size, std::span<const SavedGroup> groups, std::span<const unsigned char> fingerprint, const SecretKey& secret);

// Goes along a text, block by block.
class BlockKeys {
 public:
  BlockKeys(const ContentKey& model, std::string_view salt);
  void advance(std::span<const int32_t> block) noexcept;
  // Of the block just passed, in one layer group.
  ContentKey key(uint32_t group) const noexcept;

 private:
  ContentKey chain_;
};

}  // namespace pkv
