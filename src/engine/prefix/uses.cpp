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

void Uses::attach_tail(Use& use, Node& node, uint32_t inside) {
  if (inside > 0) split(node, inside);  // the node begins with the tail then
  Node& tail = split(node, 1);
  attach(tail);
  use.tail = &tail;
}

void Uses::detach_tail(Use& use) noexcept {
  if (use.tail != nullptr) detach(*std::exchange(use.tail, nullptr), false);
}

// Attaches before it detaches, so that what both paths have in common stays in use.
void Uses::move(Use& use, Node& node) noexcept {
  attach(node);
  detach(*std::exchange(use.node, &node), !use.passive);
  use.depth = node.end();
}

void Uses::release(Use& use, Node& end) noexcept {
  const uint32_t blocks = use.depth - end.end();
  if (blocks == 0) return;
  if (!use.passive) {
    data_.policy->used(*use.node, end.end(), use.hint, data_.clock);
    leave_behind(use, end);
  }
  move(use, end);
  if (!use.passive) data_.clock += blocks;
}

// Gives the path of a use beyond `end` its retention.
void Uses::leave_behind(const Use& use, const Node& end) noexcept {
  if (use.ranges != nullptr)
    for (const Range& range : *use.ranges) {
      split_at(use, range.first);
      split_at(use, range.last);
    }
  for (Node* node = use.node; node != &end; node = node->parent) {
    const Range* range = nullptr;
    if (use.ranges != nullptr)
      for (const Range& each : *use.ranges)
        if (node->start >= each.first && node->end() <= each.last) range = &each;
    const bool for_good = range != nullptr && range->duration_ms == 0;
    data_.set_retention(*node, std::max(node->base, for_good ? range->retention : use.retention));
    if (range == nullptr || for_good) continue;
    try {
      data_.retain_until(*node, range->retention, data_.time.in_ms(range->duration_ms));
    } catch (const std::bad_alloc&) {
      // Without memory for the time, the blocks are evicted like others.
    }
  }
}

void Uses::demote(Use& use) noexcept {
  split_at(use, use.demote_from);
  for (Node* node = use.node; node->parent != nullptr && node->start >= use.demote_from;
       node = node->parent) {
    data_.end_retention(*node);
    data_.set_retention(*node, 0);
  }
}

// Splits the node of a path that has a position in its middle, if there is memory.
void Uses::split_at(const Use& use, uint32_t position) noexcept {
  if (position >= use.depth) return;
  Node* node = use.node;
  while (node->start > position) node = node->parent;
  try {
    if (position > node->start) split(*node, position - node->start);
  } catch (const std::bad_alloc&) {
    // The range then begins or ends with a whole node.
  }
}

void Uses::shorten_into(Use& use, uint32_t blocks) noexcept {
  if (blocks == use.depth) return;
  detach_tail(use);
  Node* node = use.node;
  while (node->start > blocks) node = node->parent;
  try {
    attach_tail(use, *node, blocks - node->start);
  } catch (const std::bad_alloc&) {
    // The block can go before the session has copied it.
  }
  shorten_path(use, blocks);
}

void Uses::shorten(Use& use, uint32_t blocks) noexcept {
  detach_tail(use);
  shorten_path(use, blocks);
}

void Uses::shorten_path(Use& use, uint32_t blocks) noexcept {
  Node* node = use.node;
  while (node->start > blocks) node = node->parent;
  if (node->end() > blocks) {
    try {
      node = blocks == node->start ? node->parent : &split(*node, blocks - node->start);
    } catch (const std::bad_alloc&) {
      node = node->parent;
    }
  }
  release(use, *node);
}

void Uses::review(size_t group, uint64_t most) noexcept {
  data_.blocks.review(group, most, [&](const Node& node) {
    data_.spaces.count(space_of(node), &Figures::evictable, 1);
  });
}

void Uses::review() noexcept {
  for (size_t g = 0; g < data_.groups.size(); g++) review(g);
}

void Uses::review_some(uint64_t blocks) noexcept {
  constexpr uint64_t at_least = 16;
  for (size_t g = 0; g < data_.groups.size(); g++) review(g, at_least + 2 * blocks);
}

void Uses::reserve_node(Space& space) {
  data_.policy->reserve(data_.nodes + 1);
  if (space.quota != 0) space.candidates.reserve(space.nodes + 1);
}

Node& Uses::split(Node& node, uint32_t inside) {
  if (inside == node.size) return node;
  reserve_node(space_of(node));
  Node& upper = split_retained(node, inside);
  data_.removals++;
  data_.images.split(upper, node);
  data_.count_node(space_of(upper));
  data_.blocks.split(upper);
  return upper;
}

// Splits a node of the tree, and the entry of its raised retention. That is the only thing that
// allocates before the tree does, so it is taken back if the tree cannot.
Node& Uses::split_retained(Node& node, uint32_t inside) {
  if (node.retained_until == 0) return data_.tree.split(node, inside);
  const auto entry = data_.retained.emplace(node.retained_until, nullptr).first;
  try {
    Node& upper = data_.tree.split(node, inside);
    auto moved = data_.retained.extract(entry);
    moved.value().second = &upper;
    data_.retained.insert(std::move(moved));
    return upper;
  } catch (...) {
    data_.retained.erase(entry);
    throw;
  }
}

Node& Uses::end_after(const Tree::Found& found, uint32_t depth) {
  Node* end = found.node;
  while (end->start >= depth && end->parent != nullptr) end = end->parent;
  return depth > 0 ? split(*end, depth - end->start) : *end;
}

}  // namespace pkv::prefix
