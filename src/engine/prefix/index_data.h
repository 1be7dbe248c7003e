// The data of a prefix index: the tree, the spaces of its salts, the candidates for eviction, the
// counts derived from these, the event log and the images. The classes that work on it (uses.h,
// matcher.h, publisher.h, eviction.h, hints.h) share it under the lock of the index.
#pragma once

#include <pagedkv/prefix.h>

#include <set>
#include <utility>

#include "base/clock.h"
#include "engine/memory/group.h"
#include "engine/prefix/cached_blocks.h"
#include "engine/prefix/events.h"
#include "engine/prefix/image.h"
#include "engine/prefix/index_options.h"
#include "engine/prefix/policy.h"
#include "engine/prefix/spaces.h"

namespace pkv::prefix {

// Nodes by the time when something of them ends.
using Deadlines = std::pmr::set<std::pair<uint64_t, Node*>>;

struct IndexData {
  // Throws bad_alloc.
  IndexData(const IndexOptions& options, std::span<const std::unique_ptr<memory::Group>> groups,
            HookMemory& memory);

  uint32_t block_size() const { return tree.block_size(); }

  // Adds a node to the candidates for eviction, or removes it.
  void add_candidate(Node& node) noexcept;
  void remove_candidate(Node& node) noexcept;
  // Sets the retention of a node. If it is higher now until a time, it stays so until then.
  void set_retention(Node& node, uint8_t base) noexcept {
    node.base = base;
    if (node.retained_until == 0)
      change_retention(node, base);
    else if (base >= node.retention)
      end_retention(node);
  }
  // Gives a node at least this retention until a time. Of two times that overlap, the highest
  // retention lasts until the later one. Throws bad_alloc.
  void retain_until(Node& node, uint8_t retention, uint64_t until);
  // Ends the raise of a node's retention, if there is one.
  void end_retention(Node& node) noexcept;
  // Counts a node that was added to a space.
  void count_node(Space& space) noexcept { nodes++, space.nodes++; }
  // Drops the index's references to blocks of a group.
  void release(size_t group, std::span<const memory::Block> released) noexcept;
  // Sets ends[i] to 1 if a match can end after block number `from` + i of a node, because every
  // group has the blocks it needs there, and to 0 otherwise.
  void find_ends(const Node& node, uint32_t from, std::span<uint8_t> ends) const noexcept;
  // Records an event for each position after which a match can end now and could not before, or the
  // other way round (`lost` says why). Call it after blocks of a node in [from, last] were added or
  // removed; both are counted from the beginning of the node.
  void record_changes(Node& node, uint32_t from, uint32_t last,
                      pkv_prefix_event_kind lost) noexcept;
  // Records that the blocks of a node from its block number `from` on are removed.
  void record_removed(pkv_prefix_event_kind kind, const Node& node, uint32_t from) noexcept;

  HookMemory& memory;
  const std::span<const std::unique_ptr<memory::Group>> groups;
  Tree tree;
  const std::unique_ptr<Policy> policy;
  const Hasher hasher;
  Spaces spaces;
  EventLog events;
  Images images;
  size_t nodes = 0;
  uint64_t clock = 0;  // blocks that uses released so far
  // How often a node was split or blocks were removed; an earlier match may then be outdated.
  uint64_t removals = 0;
  CachedBlocks blocks;
  Clock time;
  Deadlines retained;  // the nodes whose retention is raised
  Deadlines pins;      // the nodes where pins end, by the times of their ends

 private:
  void change_retention(Node& node, uint8_t retention) noexcept;
  void record(pkv_prefix_event_kind kind, const Node& node, uint32_t inside) noexcept;
  void record_range(Node& node, uint32_t from, uint64_t end, pkv_prefix_event_kind lost) noexcept;
};

// Checks the equations that hold in every prefix index between calls, and adds the references that
// the index holds by group and block id. Throws INTERNAL with the first that does not hold.
void validate(const IndexData& data, uint64_t pinned_blocks,
              std::span<std::vector<uint64_t>> references);

}  // namespace pkv::prefix
