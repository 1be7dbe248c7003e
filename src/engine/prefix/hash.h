// Hashes of blocks. They are not identities: different texts may have equal hashes, by chance or
// because someone looked for such texts. Matches compare the tokens themselves; statistics, which
// sample and count by hashes, may be wrong by a little where hashes are equal, and nothing else.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace pkv::prefix {

// Returns the hash of a salt. Others hash it with seed 0, for their own hashes of events.
uint64_t hash_salt(std::string_view salt, uint64_t seed = 0) noexcept;
// Hashes each of the hashes.size() blocks of a text; before: the hash of what comes before the
// text.
void hash_blocks(std::span<const int32_t> text, uint64_t before,
                 std::span<uint64_t> hashes) noexcept;

// The hashes of a block and of all that comes before it, salt included.
struct BlockHash {
  uint64_t own = 0;    // with the secret seed of the cache, for its own statistics
  uint64_t event = 0;  // what events say and anyone can compute; 0 if no events are kept
  bool operator==(const BlockHash&) const = default;
};

// Hashes what a cache has.
class Hasher {
 public:
  Hasher(uint64_t seed, bool events) : seed_(seed), events_(events) {}
  BlockHash salt(std::string_view salt) const noexcept;
  // Works as hash_blocks().
  void blocks(std::span<const int32_t> text, BlockHash before,
              std::span<BlockHash> hashes) const noexcept;

 private:
  uint64_t seed_;
  bool events_;
};

}  // namespace pkv::prefix
