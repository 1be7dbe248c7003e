#include "engine/prefix/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace pkv::prefix {

namespace {

uint64_t hash_block(std::span<const int32_t> block, uint64_t before) noexcept {
  return XXH3_64bits_withSeed(block.data(), block.size_bytes(), before);
}

}  // namespace

uint64_t hash_salt(std::string_view salt, uint64_t seed) noexcept {
  return XXH3_64bits_withSeed(salt.data(), salt.size(), seed);
}

void hash_blocks(std::span<const int32_t> text, uint64_t before,
                 std::span<uint64_t> hashes) noexcept {
  const size_t block_size = hashes.empty() ? 0 : text.size() / hashes.size();
  for (size_t i = 0; i < hashes.size(); i++)
    before = hashes[i] = hash_block(text.subspan(i * block_size, block_size), before);
}

BlockHash Hasher::salt(std::string_view salt) const noexcept {
  return {hash_salt(salt, seed_), events_ ? hash_salt(salt) : 0};
}

void Hasher::blocks(std::span<const int32_t> text, BlockHash before,
                    std::span<BlockHash> hashes) const noexcept {
  const size_t block_size = hashes.empty() ? 0 : text.size() / hashes.size();
  for (size_t i = 0; i < hashes.size(); i++) {
    const auto block = text.subspan(i * block_size, block_size);
    before =
        hashes[i] = {hash_block(block, before.own), events_ ? hash_block(block, before.event) : 0};
  }
}

}  // namespace pkv::prefix
