// Checks the equations of a prefix index.
#include <algorithm>

#include "base/status.h"
#include "engine/prefix/index_data.h"

namespace pkv::prefix {

namespace {

struct Counts {
  uint64_t nodes = 0, candidates = 0, cached = 0, evictable = 0, pinned = 0, retained = 0, pins = 0;
  std::vector<uint64_t> spare_by_group;
};

void check_equal(const char* what, uint64_t there, uint64_t counted) {
  if (there != counted)
    fail(PKV_INTERNAL, "index: %llu %s, but %llu are counted", llu(there), what, llu(counted));
}

void check_children(const Node& node) {
  uint32_t users_below = 0, pinned_below = 0;
  for (const Node* child : node.children) {
    if (child->parent != &node || child->start != node.end())
      fail(PKV_INTERNAL, "index: a child of a node at block %u begins at %u", node.end(),
           child->start);
    users_below += child->users;
    pinned_below += child->pinned;
  }
  if (users_below > node.users)
    fail(PKV_INTERNAL, "index: a node has %u users, its children %u", node.users, users_below);
  if (pinned_below + (node.pinned_until != 0) != node.pinned || node.pinned > node.users)
    fail(PKV_INTERNAL, "index: a node has %u pins and its children %u, and %u users", node.pinned,
         pinned_below, node.users);
}

void check_deadlines(const IndexData& data, const Node& node) {
  const bool raised = node.retained_until != 0;
  if (raised ? node.retention <= node.base : node.retention != node.base)
    fail(PKV_INTERNAL, "index: a node of retention %d has %d, %s", node.base, node.retention,
         raised ? "raised for a time" : "for good");
  const auto has_end = [&](const Deadlines& deadlines, uint64_t time) {
    return time == 0 || deadlines.contains({time, const_cast<Node*>(&node)});
  };
  if (!has_end(data.retained, node.retained_until) || !has_end(data.pins, node.pinned_until))
    fail(PKV_INTERNAL, "index: the retention or the pin of a node does not end");
}

void check_candidate(const Node& node) {
  const bool own_place = node.parent != nullptr && node.is_candidate() && space_of(node).quota != 0;
  if (own_place != (node.own_place != Node::no_place))
    fail(PKV_INTERNAL, "index: candidates of a salt are not those without users and children");
  if (node.is_candidate() != (node.place != Node::no_place))
    fail(PKV_INTERNAL, "index: candidates of eviction are not those without users and children");
}

void check_node(const IndexData& data, const Node& node) {
  if (node.size == 0 || node.tokens.size() != size_t{node.size} * data.block_size() ||
      node.blocks.size() != node.size * data.groups.size() || node.hashes.size() != node.size)
    fail(PKV_INTERNAL, "index: a node of %u blocks has %zu tokens and %zu block ids", node.size,
         node.tokens.size(), node.blocks.size());
  std::vector<BlockHash> hashes(node.size);
  data.hasher.blocks(node.tokens, hash_before(node), hashes);
  if (!std::equal(hashes.begin(), hashes.end(), node.hashes.begin()))
    fail(PKV_INTERNAL, "index: hashes do not follow from the tokens at block %u", node.start);
}

void check_block(const IndexData& data, const Node& node, size_t group, uint32_t position,
                 memory::Block block, uint32_t references) {
  const auto [owner, place] = data.blocks.place_of(group, memory::block_id(block));
  const CachedBlocks::List list = data.blocks.list_of(group, block);
  const uint32_t id = memory::block_id(block);
  if (owner != &node || place != position)
    fail(PKV_INTERNAL, "index: block %u is not known to be of its node at position %u", id,
         position);
  if (!data.blocks.sparse(group)) {
    if ((list == CachedBlocks::shared) != (node.users == 0 && references != 1))
      fail(PKV_INTERNAL, "index: block %u has %u references and its node %u users; it counts as %s",
           id, references, node.users, list == CachedBlocks::shared ? "shared" : "not shared");
  } else if (list == CachedBlocks::none) {
    fail(PKV_INTERNAL, "index: the block of a window at position %u is in no list", position);
  } else if (list != CachedBlocks::shared && references != 1) {
    fail(PKV_INTERNAL,
         "index: the block of a window at position %u is evictable, but has %u references",
         position, references);
  }
}

// Returns true if a step must be able to take a block: only the index references it, and no pin
// keeps it. The uses of its node do not matter.
bool is_spare(const IndexData& data, const Node& node, size_t group, uint32_t position,
              memory::Block block, uint32_t references) {
  if (references != 1) return false;
  if (node.pinned == 0) return true;
  // A pin keeps the ends of nodes of window groups, as they were when the text was pinned.
  return data.blocks.sparse(group) && (data.blocks.is_inner(group, node, position) ||
                                       data.blocks.list_of(group, block) != CachedBlocks::shared);
}

void check_blocks(const IndexData& data, const Node& node,
                  std::span<std::vector<uint64_t>> references, Counts& counts) {
  node.for_each_block([&](uint32_t position, size_t g, memory::Block block) {
    if (block == memory::no_block) return;
    const uint32_t id = memory::block_id(block);
    const memory::BlockState state = data.groups[g]->pool.state(id);
    if (state.generation != memory::block_generation(block) || state.filled != data.block_size())
      fail(PKV_INTERNAL, "index: block %u was freed since, or is not full", id);
    check_block(data, node, g, position, block, state.references);
    references[g][id]++;
    const bool spare = is_spare(data, node, g, position, block, state.references);
    counts.spare_by_group[g] += spare;
    if (const memory::PageUse* const use = data.groups[g]->pool.page_use())
      if (use->is_reclaimable(id) != spare)
        fail(PKV_INTERNAL, "index: block %u is %sevictable, which its page does not know", id,
             spare ? "" : "not ");
  });
}

// Returns how many positions of a node have a shared block of a full group.
uint32_t count_shared(const IndexData& data, const Node& node) {
  std::vector<uint8_t> shared(node.size);
  node.for_each_block([&](uint32_t position, size_t g, memory::Block block) {
    if (!data.blocks.sparse(g) && data.blocks.list_of(g, block) == CachedBlocks::shared)
      shared[position - node.start] = 1;
  });
  return static_cast<uint32_t>(std::count(shared.begin(), shared.end(), 1));
}

void check_announced(const IndexData& data, const Node& node) {
  if (!data.events.kept()) return;
  std::vector<uint8_t> ends(node.size);
  data.find_ends(node, 0, ends);
  if (!std::equal(ends.begin(), ends.end(), node.announced.begin(), node.announced.end()))
    fail(PKV_INTERNAL, "index: events do not say where a match can end after block %u", node.start);
}

// Checks and counts all nodes.
Counts count_nodes(const IndexData& data, std::span<std::vector<uint64_t>> references) {
  Counts counts;
  counts.spare_by_group.resize(data.groups.size());
  std::vector<const Node*> rest(data.tree.roots().begin(), data.tree.roots().end());
  while (!rest.empty()) {
    const Node& node = *rest.back();
    rest.pop_back();
    rest.insert(rest.end(), node.children.begin(), node.children.end());
    check_children(node);
    check_candidate(node);
    if (node.parent == nullptr) continue;
    check_node(data, node);
    check_deadlines(data, node);
    check_blocks(data, node, references, counts);
    check_announced(data, node);
    counts.nodes++;
    counts.candidates += node.place != Node::no_place;
    counts.cached += node.size;
    counts.retained += node.retained_until != 0;
    counts.pins += node.pinned_until != 0;
    counts.pinned += node.pinned > 0 ? node.size : 0;
    check_equal("positions with shared blocks of a node", count_shared(data, node), node.shared);
    counts.evictable += node.users == 0 ? node.size - node.shared : 0;
  }
  return counts;
}

}  // namespace

void validate(const IndexData& data, uint64_t pinned_blocks,
              std::span<std::vector<uint64_t>> references) {
  const Counts counts = count_nodes(data, references);
  const Figures& all = data.spaces.total();
  size_t nodes = 0, candidates = 0;
  for (const auto& [salt, space] : data.spaces.all()) {
    nodes += space.nodes;
    space.candidates.validate();
  }
  data.policy->validate();
  for (const auto& each : data.policy->candidates()) candidates += each.size();
  check_equal("nodes", counts.nodes, data.nodes);
  check_equal("nodes of all salts", nodes, data.nodes);
  check_equal("candidates of eviction", counts.candidates, candidates);
  check_equal("nodes with a raised retention", counts.retained, data.retained.size());
  check_equal("pins", counts.pins, data.pins.size());
  check_equal("blocks", counts.cached, all.cached);
  check_equal("evictable blocks", counts.evictable, all.evictable);
  check_equal("pinned blocks", counts.pinned, pinned_blocks);
  check_equal("pinned blocks of all salts", all.pinned, pinned_blocks);
  for (size_t g = 0; g < data.groups.size(); g++)
    check_equal("blocks of a group to which nobody but the index refers", counts.spare_by_group[g],
                data.blocks.evictable(g));
}

}  // namespace pkv::prefix
