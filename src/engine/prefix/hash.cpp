#include "engine/prefix/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#if !defined(PKV_HASH_BITS)
#define PKV_HASH_BITS 64
#endif

namespace pkv::prefix {

namespace {

// In some tests hashes have a few bits, so that many are equal. These are spread over all 64 again,
// because policies take some of them from one end and some from the other.
uint64_t cut(uint64_t hash) noexcept {
  constexpr uint64_t spread = PKV_HASH_BITS < 64 ? 0x9E3779B97F4A7C15u : 1;
  return (hash >> (64 - PKV_HASH_BITS)) * spread;
}

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
  return {cut(hash_salt(salt, seed_)), events_ ? hash_salt(salt) : 0};
}

void Hasher::blocks(std::span<const int32_t> text, BlockHash before,
                    std::span<BlockHash> hashes) const noexcept {
  const size_t block_size = hashes.empty() ? 0 : text.size() / hashes.size();
  for (size_t i = 0; i < hashes.size(); i++) {
    const auto block = text.subspan(i * block_size, block_size);
    before = hashes[i] = {cut(hash_block(block, before.own)),
                          events_ ? hash_block(block, before.event) : 0};
  }
}

}  // namespace pkv::prefix
