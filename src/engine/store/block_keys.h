// Computes the keys under which a store has blocks: BLAKE2b-256 over the model, the salt and all
// tokens up to the end of the block. Nobody can choose two texts with the same key. If the caller
// gives a secret, nobody else can tell which text a key stands for.
#pragma once

#include <string.h>

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/secret.h"
#include "engine/file/format.h"

namespace pkv::store {

using ContentKey = std::array<unsigned char, 32>;

// Hashes what all blocks of a cache have in common: the first step of every key. Throws UNSUPPORTED
// in a build without libsodium.
ContentKey hash_model(uint32_t block_size, std::span<const file::SavedGroup> groups,
                      std::span<const unsigned char> fingerprint, const Secret& secret);

// Computes the keys of a text, block by block: advance() to a block, then key() for each group.
class BlockKeys {
 public:
  BlockKeys(const ContentKey& model, std::string_view salt);
  ~BlockKeys() { explicit_bzero(chain_.data(), chain_.size()); }
  BlockKeys(const BlockKeys&) = delete;
  BlockKeys& operator=(const BlockKeys&) = delete;
  void advance(std::span<const int32_t> block) noexcept;
  // Returns the key of the last block that was passed to advance(), in one layer group.
  ContentKey key(uint32_t group) const noexcept;

 private:
  ContentKey chain_;
};

}  // namespace pkv::store
