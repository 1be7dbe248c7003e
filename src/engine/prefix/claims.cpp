#include "engine/prefix/claims.h"

#include <algorithm>
#include <utility>

#include "base/vectors.h"

namespace pkv::prefix {

void Claims::attach(Node& node) noexcept {
  for (Node* each = &node; each != nullptr; each = each->parent) {
    if (each->users++ > 0) continue;
    contents_.remove_candidate(*each);
    count_evictable(*each, false);
  }
}

void Claims::detach(Node& node, bool used) noexcept {
  bool kept = false;
  for (Node* each = &node; each != nullptr; each = each->parent) {
    if (used) each->last_use = contents_.clock;  // it was in use until now
    if (kept || --each->users > 0) continue;
    if (const uint32_t referenced = count_referenced(*each); referenced > 0) {
      kept = true;
      if (&keep(*each, referenced) == each) continue;
    }
    count_evictable(*each, true);
    if (each->is_candidate()) contents_.add_candidate(*each);
  }
}

// Attaches before it detaches, so that what both paths have in common stays in use.
void Claims::move(Claim& claim, Node& node) noexcept {
  attach(node);
  detach(*std::exchange(claim.node, &node), true);
  claim.depth = node.end();
}

void Claims::give_up(Claim& claim, Node& end) noexcept {
  const uint32_t blocks = claim.depth - end.end();
  if (blocks == 0) return;
  contents_.policy->used(*claim.node, end.end(), claim.hint, contents_.clock);
  for (Node* node = claim.node; node != &end; node = node->parent)
    node->retention = std::max(node->retention, claim.retention);
  move(claim, end);
  contents_.clock += blocks;
}

void Claims::shorten(Claim& claim, uint32_t blocks) noexcept {
  Node* node = claim.node;
  while (node->start > blocks) node = node->parent;
  if (node->end() > blocks) {
    try {
      node = blocks == node->start ? node->parent : &split(*node, blocks - node->start);
    } catch (const std::bad_alloc&) {
      node = node->parent;
    }
  }
  give_up(claim, *node);
}

// How many blocks a node has up to the last one that somebody besides the index refers to.
uint32_t Claims::count_referenced(const Node& node) const noexcept {
  const auto& groups = contents_.groups;
  for (size_t i = node.blocks.size(); i-- > 0;) {
    const memory::Pool& pool = groups[i % groups.size()]->pool;
    if (node.blocks[i] != memory::no_block &&
        pool.references(memory::block_id(node.blocks[i])) != 1)
      return static_cast<uint32_t>(i / groups.size()) + 1;
  }
  return 0;
}

// Claims the first blocks of a node that has no claim. They become a node of their own; without the
// memory for that, the whole node is claimed.
Node& Claims::keep(Node& node, uint32_t blocks) noexcept {
  Node* kept = &node;
  try {
    kept = &split(node, blocks);
  } catch (const std::bad_alloc&) {
  }
  kept->users = 1;
  unclaimed_.push_back(kept);
  return *kept;
}

void Claims::review_unclaimed() noexcept {
  for (size_t i = unclaimed_.size(); i-- > 0;) {
    Node& node = *unclaimed_[i];
    if (node.users == 1 && count_referenced(node) == node.size) continue;
    unclaimed_[i] = unclaimed_.back();
    unclaimed_.pop_back();
    detach(node, false);
  }
}

bool Claims::unclaim(Node& node) noexcept {
  const auto kept = std::find(unclaimed_.begin(), unclaimed_.end(), &node);
  const bool claimed = node.users > (kept != unclaimed_.end() ? 1u : 0u);
  if (claimed || !node.children.empty()) return false;
  if (kept == unclaimed_.end()) return true;
  unclaimed_.erase(kept);
  node.users = 0;
  count_evictable(node, true);
  contents_.add_candidate(node);
  detach(*node.parent, false);
  return true;
}

// The blocks of a node become evictable, or are so no longer.
void Claims::count_evictable(Node& node, bool evictable) noexcept {
  const auto& groups = contents_.groups;
  for (size_t g = 0; g < groups.size(); g++) {
    if (contents_.windows.has(g)) continue;  // these are evictable one by one
    contents_.evictable[g] += evictable ? node.size : uint64_t{0} - node.size;
  }
  contents_.spaces.count(space_of(node), &Figures::evictable,
                         evictable ? node.size : uint64_t{0} - node.size);
}

void Claims::reserve_node(Space& space) {
  const size_t nodes = contents_.nodes + 1;
  contents_.policy->reserve(nodes);
  if (unclaimed_.capacity() < nodes) reserve_more(unclaimed_, nodes - unclaimed_.size());
  if (space.quota != 0) space.own.reserve(space.nodes + 1);
}

Node& Claims::split(Node& node, uint32_t inside) {
  if (inside == node.size) return node;
  reserve_node(space_of(node));
  Node& upper = contents_.tree.split(node, inside);
  contents_.removals++;
  contents_.count_node(space_of(upper));
  contents_.windows.split(upper);
  return upper;
}

Node& Claims::end_after(const Tree::Match& found, uint32_t depth) {
  Node* end = found.node;
  while (end->start >= depth && end->parent != nullptr) end = end->parent;
  return depth > 0 ? split(*end, depth - end->start) : *end;
}

}  // namespace pkv::prefix
