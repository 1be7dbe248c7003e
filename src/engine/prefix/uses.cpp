#include "engine/prefix/uses.h"

#include <algorithm>
#include <utility>

namespace pkv::prefix {

void Uses::attach(Node& node) noexcept {
  for (Node* each = &node; each != nullptr; each = each->parent)
    if (each->users++ == 0) begin_use(*each);
}

void Uses::detach(Node& node, bool used) noexcept {
  for (Node* each = &node; each != nullptr; each = each->parent) {
    if (used) each->last_use = data_.clock;  // it was in use until now
    if (--each->users == 0) end_use(*each);
  }
}

// The first use of a node begins.
void Uses::begin_use(Node& node) noexcept {
  data_.remove_candidate(node);
  data_.spaces.count(space_of(node), &Figures::evictable, uint64_t{node.shared} - node.size);
  data_.blocks.begin_use(node);
}

// The last use of a node ended.
void Uses::end_use(Node& node) noexcept {
  data_.blocks.end_use(node);
  data_.spaces.count(space_of(node), &Figures::evictable, node.size - node.shared);
  if (node.is_candidate()) data_.add_candidate(node);
}

// Attaches before it detaches, so that what both paths have in common stays in use.
void Uses::move(Use& use, Node& node) noexcept {
  attach(node);
  detach(*std::exchange(use.node, &node), true);
  use.depth = node.end();
}

void Uses::give_up(Use& use, Node& end) noexcept {
  const uint32_t blocks = use.depth - end.end();
  if (blocks == 0) return;
  data_.policy->used(*use.node, end.end(), use.hint, data_.clock);
  for (Node* node = use.node; node != &end; node = node->parent)
    node->retention = std::max(node->retention, use.retention);
  move(use, end);
  data_.clock += blocks;
}

void Uses::shorten(Use& use, uint32_t blocks) noexcept {
  Node* node = use.node;
  while (node->start > blocks) node = node->parent;
  if (node->end() > blocks) {
    try {
      node = blocks == node->start ? node->parent : &split(*node, blocks - node->start);
    } catch (const std::bad_alloc&) {
      node = node->parent;
    }
  }
  give_up(use, *node);
}

void Uses::review(size_t group) noexcept {
  data_.blocks.review(
      group, [&](const Node& node) { data_.spaces.count(space_of(node), &Figures::evictable, 1); });
}

void Uses::review() noexcept {
  for (size_t g = 0; g < data_.groups.size(); g++) review(g);
}

void Uses::review_figures() noexcept {
  for (size_t g = 0; g < data_.groups.size(); g++)
    if (!data_.blocks.sparse(g)) review(g);
}

void Uses::reserve_node(Space& space) {
  data_.policy->reserve(data_.nodes + 1);
  if (space.quota != 0) space.own.reserve(space.nodes + 1);
}

Node& Uses::split(Node& node, uint32_t inside) {
  if (inside == node.size) return node;
  reserve_node(space_of(node));
  Node& upper = data_.tree.split(node, inside);
  data_.removals++;
  data_.count_node(space_of(upper));
  data_.blocks.split(upper);
  return upper;
}

Node& Uses::end_after(const Tree::Found& found, uint32_t depth) {
  Node* end = found.node;
  while (end->start >= depth && end->parent != nullptr) end = end->parent;
  return depth > 0 ? split(*end, depth - end->start) : *end;
}

}  // namespace pkv::prefix
