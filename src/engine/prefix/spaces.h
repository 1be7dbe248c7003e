// What is cached under each salt: a tree of its own, its figures, and its quota.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "engine/prefix/node_heap.h"
#include "engine/prefix/shared_count.h"

namespace pkv::prefix {

struct Figures {
  SharedCount matches, asked_tokens, matched_tokens, matched_blocks;  // added to by readers
  uint64_t published = 0, evicted = 0, expelled = 0, cleared = 0, cached = 0, evictable = 0,
           pinned = 0;
  void add(const Figures& other);
};

struct Space {
  Node& root;
  uint64_t hash;           // of the salt
  NodeHeap own;            // its candidates for eviction, if it has a quota
  uint64_t quota;          // in blocks; 0: no quota
  bool own_quota = false;  // set for this salt, rather than for all salts
  size_t nodes = 0;
  Figures figures = {};
};

// The space that a node belongs to.
inline Space& space_of(const Node& node) noexcept { return *static_cast<Space*>(node.owner); }
// The hash of all that comes before a node.
uint64_t hash_before(const Node& node) noexcept;

class Spaces {
 public:
  Spaces(Tree& tree, uint64_t default_quota, std::pmr::memory_resource& memory)
      : tree_(tree), default_quota_(default_quota), memory_(memory), by_salt_(&memory) {}

  Space* find(std::string_view salt) noexcept;
  const Space* find(std::string_view salt) const noexcept;
  // Finds or makes the space of a salt; throws bad_alloc.
  Space& at(std::string_view salt);
  std::string_view salt_of(const Space& space) const noexcept;
  // Forgets a space that has no block, no session and no quota of its own any more. Otherwise salts
  // that come once would add up.
  void drop_if_empty(Space& space) noexcept;

  uint64_t default_quota() const { return default_quota_; }
  // The figures of all spaces, including those that were dropped.
  Figures total() const noexcept;
  const auto& all() const { return by_salt_; }

 private:
  using Map = std::pmr::map<std::pmr::string, Space, std::less<>>;

  Map::const_iterator entry_of(const Space& space) const noexcept;

  Tree& tree_;
  const uint64_t default_quota_;
  std::pmr::memory_resource& memory_;
  Map by_salt_;
  Figures dropped_;  // of spaces that were dropped
};

}  // namespace pkv::prefix
