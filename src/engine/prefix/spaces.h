// The part of the index of each salt: its own tree, its statistics and its quota.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/count.h"
#include "engine/prefix/node_heap.h"

namespace pkv::prefix {

struct Figures {
  Count lookups, lookup_tokens, matched_tokens, yielded;
  Count published, evicted, expelled, cleared, cached, evictable, pinned;  // in blocks
};

struct Space {
  Node& root;
  std::string_view salt;
  BlockHash hash;              // of the salt
  NodeHeap candidates;         // for eviction, if it has a quota
  uint64_t quota;              // in blocks; 0: no quota
  bool has_own_quota = false;  // set for this salt, rather than for all salts
  size_t nodes = 0;
  Figures figures = {};
};

// The space that a node belongs to.
inline Space& space_of(const Node& node) noexcept { return *node.space; }
// The hash of all that comes before a node.
BlockHash hash_before(const Node& node) noexcept;

class Spaces {
 public:
  Spaces(Tree& tree, const Hasher& hasher, uint64_t default_quota,
         std::pmr::memory_resource& memory)
      : tree_(tree),
        hasher_(hasher),
        default_quota_(default_quota),
        memory_(memory),
        by_salt_(&memory) {}

  Space* find(std::string_view salt) noexcept;
  const Space* find(std::string_view salt) const noexcept;
  // Finds or makes the space of a salt; throws bad_alloc.
  Space& at(std::string_view salt);
  // Forgets a space that has no block, no session and no quota of its own any more. Otherwise salts
  // that come once would add up.
  void drop_if_empty(Space& space) noexcept;

  uint64_t default_quota() const { return default_quota_; }
  // Adds to a figure of a space and of all of them; several threads may do so at once. A negative
  // number is given modulo 2^64.
  void count(Space& space, Count Figures::* figure, uint64_t more) noexcept;
  // Returns the figures of all spaces, including those that were dropped.
  const Figures& total() const { return total_; }
  const auto& all() const { return by_salt_; }
  auto& all() { return by_salt_; }

 private:
  Tree& tree_;
  const Hasher& hasher_;
  const uint64_t default_quota_;
  std::pmr::memory_resource& memory_;
  std::pmr::map<std::pmr::string, Space, std::less<>> by_salt_;
  Figures total_;
};

}  // namespace pkv::prefix
