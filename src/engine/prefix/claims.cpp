#include "engine/prefix/claims.h"

#include <algorithm>
#include <utility>

namespace pkv::prefix {

void Claims::attach(Node& node) noexcept {
  for (Node* each = &node; each != nullptr; each = each->parent)
    if (each->users++ == 0) claim(*each);
}

void Claims::detach(Node& node, bool used) noexcept {
  for (Node* each = &node; each != nullptr; each = each->parent) {
    if (used) each->last_use = contents_.clock;  // it was in use until now
    if (--each->users == 0) unclaim(*each);
  }
}

// The first claim on a node begins.
void Claims::claim(Node& node) noexcept {
  contents_.remove_candidate(node);
  contents_.spaces.count(space_of(node), &Figures::evictable, uint64_t{node.shared} - node.size);
  contents_.blocks.begin_use(node);
}

// The last claim on a node ended.
void Claims::unclaim(Node& node) noexcept {
  contents_.blocks.end_use(node);
  contents_.spaces.count(space_of(node), &Figures::evictable, node.size - node.shared);
  if (node.is_candidate()) contents_.add_candidate(node);
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

void Claims::review(size_t group) noexcept {
  contents_.blocks.review(group, [&](const Node& node) {
    contents_.spaces.count(space_of(node), &Figures::evictable, 1);
  });
}

void Claims::review() noexcept {
  for (size_t g = 0; g < contents_.groups.size(); g++) review(g);
}

void Claims::review_figures() noexcept {
  for (size_t g = 0; g < contents_.groups.size(); g++)
    if (!contents_.blocks.sparse(g)) review(g);
}

void Claims::reserve_node(Space& space) {
  contents_.policy->reserve(contents_.nodes + 1);
  if (space.quota != 0) space.own.reserve(space.nodes + 1);
}

Node& Claims::split(Node& node, uint32_t inside) {
  if (inside == node.size) return node;
  reserve_node(space_of(node));
  Node& upper = contents_.tree.split(node, inside);
  contents_.removals++;
  contents_.count_node(space_of(upper));
  contents_.blocks.split(upper);
  return upper;
}

Node& Claims::end_after(const Tree::Match& found, uint32_t depth) {
  Node* end = found.node;
  while (end->start >= depth && end->parent != nullptr) end = end->parent;
  return depth > 0 ? split(*end, depth - end->start) : *end;
}

}  // namespace pkv::prefix
