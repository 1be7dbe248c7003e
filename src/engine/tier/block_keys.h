// Names of blocks by what they hold: BLAKE2b-256 over the model, the salt and all tokens up to the
// end of the block. No two texts have one name, whoever chooses them; with a key nobody else can
// tell what a name stands for.
#pragma once

#include <string.h>

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/secret.h"
#include "engine/file/format.h"

namespace pkv::tier {

using ContentKey = std::array<unsigned char, 32>;

// The part of the name that all blocks of a cache have in common. Throws UNSUPPORTED in a build
// without libsodium.
ContentKey hash_model(uint32_t block_size, std::span<const file::SavedGroup> groups,
                      std::span<const unsigned char> fingerprint, const Secret& secret);

// Goes along a text, block by block.
class BlockKeys {
 public:
  BlockKeys(const ContentKey& model, std::string_view salt);
  ~BlockKeys() { explicit_bzero(chain_.data(), chain_.size()); }
  BlockKeys(const BlockKeys&) = delete;
  BlockKeys& operator=(const BlockKeys&) = delete;
  void advance(std::span<const int32_t> block) noexcept;
  // Of the block just passed, in one layer group.
  ContentKey key(uint32_t group) const noexcept;

 private:
  ContentKey chain_;
};

}  // namespace pkv::tier
