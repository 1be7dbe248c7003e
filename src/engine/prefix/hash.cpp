#include "engine/prefix/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace pkv::prefix {

uint64_t hash_salt(std::string_view salt) noexcept { return XXH3_64bits(salt.data(), salt.size()); }

void hash_blocks(std::span<const int32_t> text, uint64_t before,
                 std::span<uint64_t> hashes) noexcept {
  const size_t block_size = hashes.empty() ? 0 : text.size() / hashes.size();
  for (size_t i = 0; i < hashes.size(); i++)
    before = hashes[i] =
        XXH3_64bits_withSeed(text.data() + i * block_size, block_size * sizeof(int32_t), before);
}

}  // namespace pkv::prefix
