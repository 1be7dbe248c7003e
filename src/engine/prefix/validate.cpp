#include <algorithm>

#include "base/status.h"
#include "engine/prefix/hash.h"
#include "engine/prefix/index.h"

namespace pkv::prefix {

namespace {

struct Found {
  uint64_t nodes = 0, candidates = 0, cached = 0, evictable = 0, pinned = 0;
};

void check_hashes(const Node& node, uint64_t before) {
  std::vector<uint64_t> hashes(node.size);
  hash_blocks(node.tokens, before, hashes);
  if (!std::equal(hashes.begin(), hashes.end(), node.hashes.begin()))
    fail(PKV_INTERNAL, "index: hashes do not follow from the tokens at block %u", node.start);
}

}  // namespace

void Index::validate(std::span<std::vector<uint64_t>> references) const {
  const std::lock_guard lock(mutex_);
  Found found;
  std::vector<uint64_t> evictable(groups_.size());
  std::vector<const Node*> rest(tree_.roots().begin(), tree_.roots().end());
  while (!rest.empty()) {
    const Node& node = *rest.back();
    rest.pop_back();
    uint32_t users_below = 0, pinned_below = 0;
    for (const Node* child : node.children) {
      if (child->parent != &node || child->start != node.end())
        fail(PKV_INTERNAL, "index: a child of a node at block %u begins at %u", node.end(),
             child->start);
      users_below += child->users;
      pinned_below += child->pinned;
      rest.push_back(child);
    }
    if (users_below > node.users)
      fail(PKV_INTERNAL, "index: a node has %u users, its children %u", node.users, users_below);
    if (pinned_below + node.pins != node.pinned || node.pinned > node.users)
      fail(PKV_INTERNAL, "index: %u pins of a node and %u below; it counts %u, and %u users",
           node.pins, pinned_below, node.pinned, node.users);
    const bool own_place = node.parent != nullptr && node.is_candidate() &&
                           static_cast<const Space*>(node.owner)->quota != 0;
    if (own_place != (node.own_place != Node::no_place))
      fail(PKV_INTERNAL, "index: candidates of a salt are not those without users and children");
    if (node.is_candidate() != (node.place != Node::no_place))
      fail(PKV_INTERNAL, "index: candidates of eviction are not those without users and children");
    if (node.parent == nullptr) continue;
    if (node.size == 0 || node.tokens.size() != size_t{node.size} * tree_.block_size() ||
        node.blocks.size() != node.size * groups_.size() || node.hashes.size() != node.size)
      fail(PKV_INTERNAL, "index: a node of %u blocks has %zu tokens and %zu block ids", node.size,
           node.tokens.size(), node.blocks.size());
    check_hashes(node, node.parent->parent != nullptr
                           ? node.parent->hashes.back()
                           : static_cast<const Space*>(node.owner)->hash);
    found.nodes++;
    found.candidates += node.place != Node::no_place;
    found.cached += node.size;
    found.pinned += node.pinned > 0 ? node.size : 0;
    found.evictable += node.users == 0 ? node.size : 0;
    for (size_t i = 0; i < node.blocks.size(); i++) {
      if (node.blocks[i] == memory::no_block) continue;
      const size_t g = i % groups_.size();
      const memory::BlockState state = groups_[g]->pool.state(memory::block_id(node.blocks[i]));
      if (state.generation != memory::block_generation(node.blocks[i]) ||
          state.filled != tree_.block_size())
        fail(PKV_INTERNAL, "index: block %u is of another life or not full",
             memory::block_id(node.blocks[i]));
      if (node.users == 0 && state.references != 1)
        fail(PKV_INTERNAL, "index: block %u is evictable, but has %u references",
             memory::block_id(node.blocks[i]), state.references);
      references[g][memory::block_id(node.blocks[i])]++;
      evictable[g] += node.users == 0;
    }
  }
  Figures all = gone_;
  size_t nodes = 0, candidates = 0;
  for (const auto& [salt, space] : spaces_) {
    all.add(space.figures);
    nodes += space.nodes;
  }
  for (const auto& each : policy_->candidates()) candidates += each.size();
  const auto agree = [](const char* what, uint64_t there, uint64_t counted) {
    if (there != counted)
      fail(PKV_INTERNAL, "index: %llu %s, but %llu are counted", (unsigned long long)there, what,
           (unsigned long long)counted);
  };
  agree("nodes", found.nodes, nodes_);
  agree("nodes of all salts", nodes, nodes_);
  agree("candidates of eviction", found.candidates, candidates);
  agree("blocks", found.cached, all.cached);
  agree("evictable blocks", found.evictable, all.evictable);
  agree("pinned blocks", found.pinned, pinned_);
  agree("pinned blocks of all salts", all.pinned, pinned_);
  for (size_t g = 0; g < groups_.size(); g++)
    agree("evictable blocks of a group", evictable[g], evictable_[g]);
}

}  // namespace pkv::prefix
