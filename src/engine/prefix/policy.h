// The interface of an eviction policy, which chooses the cached blocks to evict. Candidates are
// unused nodes without children. The chosen node loses blocks from its end. Nodes of a lower
// retention are evicted before all nodes of a higher one. The data by which a policy orders a node
// changes only while the node is not a candidate.
#pragma once

#include <pagedkv/hint.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "engine/prefix/tree.h"

namespace pkv::prefix {

// Encodes when a text is expected to continue: 0 (unknown), the bit width of tenths of a second, or
// never.
constexpr uint8_t hint_never = 17;
inline uint8_t hint_of(uint64_t delay_ms) {
  if (delay_ms == 0) return 0;
  if (delay_ms == PKV_RETURN_NEVER) return hint_never;
  const auto width = static_cast<int>(std::bit_width(delay_ms / 100));
  return static_cast<uint8_t>(std::clamp(width, 1, hint_never - 1));
}

// The retention of blocks of which no hint said anything. 0 is the lowest one.
constexpr uint8_t normal_retention = 1;

class Policy {
 public:
  virtual ~Policy() = default;

  // Makes room for this many candidates, so that add() cannot fail. Throws bad_alloc.
  virtual void reserve(size_t nodes) = 0;
  virtual void add(Node& node) noexcept = 0;
  // Does nothing if the node is no candidate.
  virtual void remove(Node& node) noexcept = 0;
  // The candidates by retention; a policy that keeps them in one list returns only the first.
  static constexpr size_t retentions = 3;
  virtual std::array<std::span<Node* const>, retentions> candidates() const = 0;
  // Returns the candidate that loses blocks next; nullptr if there is none.
  virtual Node* victim() noexcept = 0;
  // Checks what the policy keeps against the nodes. Throws INTERNAL.
  virtual void validate() const = 0;

  // What a policy may learn from. New blocks are inserted, in the order of a text: the policy fills
  // in how they were used before, as far as it remembers.
  virtual void inserted(std::span<const BlockHash> /*hashes*/,
                        std::span<History> /*histories*/) noexcept {}
  // A use of the path to `end` is over, and the path beyond its first `from` blocks is released.
  // hint: see hint_of. now: how many blocks were released so far.
  virtual void used(Node& /*end*/, uint32_t /*from*/, uint8_t /*hint*/, uint64_t /*now*/) noexcept {
  }
  // A candidate is about to lose its last `count` blocks.
  virtual void evicted(Node& /*node*/, uint32_t /*count*/) noexcept {}
};

}  // namespace pkv::prefix
