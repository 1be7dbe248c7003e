// What a prefix index contains: the tree, the spaces of its salts, the candidates for eviction, the
// counts that follow from these, and who is told of changes. The roles that work on it (claims.h,
// matcher.h, publisher.h, eviction.h, pins.h) share it under the lock of the index.
#pragma once

#include <pagedkv/prefix.h>

#include "engine/memory/group.h"
#include "engine/prefix/events.h"
#include "engine/prefix/image.h"
#include "engine/prefix/policy.h"
#include "engine/prefix/spaces.h"

namespace pkv::prefix {

struct Contents {
  // Throws bad_alloc.
  Contents(const pkv_prefix_config& config, uint32_t block_size,
           std::span<const std::unique_ptr<memory::Group>> groups, HookMemory& memory);

  uint32_t block_size() const { return tree.block_size(); }

  // A node becomes a candidate for eviction, or is one no longer.
  void add_candidate(Node& node) noexcept;
  void remove_candidate(Node& node) noexcept;
  // A node was added to a space.
  void count_node(Space& space) noexcept { nodes++, space.nodes++; }
  // Drops the index's references to blocks of a group.
  void release(size_t group, std::span<const memory::Block> blocks) noexcept;
  // Records an event for each block of a node from block number `from` of it on.
  void record(pkv_prefix_event_kind kind, const Node& node, uint32_t from) noexcept;

  const std::span<const std::unique_ptr<memory::Group>> groups;
  Tree tree;
  const std::unique_ptr<Policy> policy;
  Spaces spaces;
  EventLog events;
  Images images;
  size_t nodes = 0;
  uint64_t clock = 0;               // blocks that claims gave up so far
  std::vector<uint64_t> evictable;  // blocks by group
};

}  // namespace pkv::prefix
