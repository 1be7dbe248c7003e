#include "engine/prefix/window_blocks.h"

#include <algorithm>

namespace pkv::prefix {

WindowBlocks::WindowBlocks(std::span<const std::unique_ptr<memory::Group>> groups,
                           std::pmr::memory_resource& memory)
    : groups_(groups) {
  for (size_t g = 0; g < groups.size(); g++) {
    Lists& lists = lists_.emplace_back(Lists{std::pmr::vector<Slot>(&memory)});
    if (!has(g)) continue;
    lists.slots.resize(size_t{groups[g]->pool.blocks()} + none);
    for (const List list : {held, inner, edge}) {
      Slot& slot = lists.slots[head(g, list)];
      slot.before = slot.after = head(g, list);
    }
  }
}

uint32_t WindowBlocks::head(size_t group, List list) const {
  return groups_[group]->pool.blocks() + list;
}

void WindowBlocks::move(size_t group, uint32_t id, List list) noexcept {
  Lists& lists = lists_[group];
  std::pmr::vector<Slot>& slots = lists.slots;
  Slot& slot = slots[id];
  if (slot.list != none) {
    slots[slot.before].after = slot.after;
    slots[slot.after].before = slot.before;
    lists.evictable -= slot.list != held;
  }
  slot.list = list;
  if (list == none) return;
  lists.evictable += list != held;
  const bool first = list == inner && slot.passing && groups_[group]->has_states();
  slot.after = first ? slots[head(group, list)].after : head(group, list);
  slot.before = slots[slot.after].before;
  slots[slot.before].after = slots[slot.after].before = id;
}

void WindowBlocks::add(size_t group, memory::Block block, Node& node, uint32_t position,
                       bool passing) noexcept {
  const uint32_t id = memory::block_id(block);
  Slot& slot = lists_[group].slots[id];
  slot.node = &node;
  slot.position = position;
  slot.passing = passing;
  move(group, id, held);
}

void WindowBlocks::remove(size_t group, memory::Block block) noexcept {
  move(group, memory::block_id(block), none);
}

void WindowBlocks::hold(size_t group, memory::Block block) noexcept {
  move(group, memory::block_id(block), held);
}

void WindowBlocks::review(size_t group) noexcept {
  if (!has(group)) return;
  const std::pmr::vector<Slot>& slots = lists_[group].slots;
  for (uint32_t id = slots[head(group, held)].after, next = 0; id != head(group, held); id = next) {
    next = slots[id].after;
    if (groups_[group]->pool.references(id) > 1) continue;
    const bool in_node = is_inner(group, *slots[id].node, slots[id].position);
    if (in_node || slots[id].node->pinned == 0) move(group, id, in_node ? inner : edge);
  }
}

bool WindowBlocks::gives_up(size_t group, memory::Block block) const {
  const Slot& slot = lists_[group].slots[memory::block_id(block)];
  return slot.list != none &&
         (slot.node->pinned == 0 || is_inner(group, *slot.node, slot.position));
}

template <class Visit>
void WindowBlocks::for_each_edge(Node& node, const Visit& visit) noexcept {
  for (size_t g = 0; g < groups_.size(); g++) {
    if (!has(g)) continue;
    const memory::Coverage needed = coverage(g);
    for (uint32_t position = node.start; position < node.end(); position++) {
      const memory::Block block = node.blocks_at(position)[g];
      if (block != memory::no_block && needed.needs(position, node.end())) visit(g, block);
    }
  }
}

void WindowBlocks::split(Node& upper) noexcept {
  upper.for_each_block([&](uint32_t, size_t group, memory::Block block) {
    if (has(group) && block != memory::no_block)
      lists_[group].slots[memory::block_id(block)].node = &upper;
  });
  for_each_edge(upper, [&](size_t group, memory::Block block) {
    const uint32_t id = memory::block_id(block);
    if (lists_[group].slots[id].list == inner) move(group, id, edge);
  });
}

void WindowBlocks::extended(Node& node, uint32_t end) noexcept {
  for (size_t g = 0; g < groups_.size(); g++) {
    if (!has(g)) continue;
    const auto window = static_cast<uint32_t>(std::min<uint64_t>(end, coverage(g).window));
    for (uint32_t position = std::max(node.start, end - window);
         position < end && is_inner(g, node, position); position++) {
      const memory::Block block = node.blocks_at(position)[g];
      if (block == memory::no_block) continue;
      const uint32_t id = memory::block_id(block);
      if (lists_[g].slots[id].list == edge) move(g, id, inner);
    }
  }
}

void WindowBlocks::pin(Node& node) noexcept {
  for_each_edge(node, [&](size_t group, memory::Block block) { hold(group, block); });
}

std::optional<WindowBlocks::Place> WindowBlocks::first(size_t group, List list) noexcept {
  if (!has(group)) return std::nullopt;
  const std::pmr::vector<Slot>& slots = lists_[group].slots;
  for (;;) {
    const uint32_t id = slots[head(group, list)].after;
    if (id == head(group, list)) return std::nullopt;
    const Slot& slot = slots[id];
    // The node may have become shorter since the block was found to be an inner one.
    if (list == edge || is_inner(group, *slot.node, slot.position))
      return Place{slot.node, slot.position, id};
    move(group, id, edge);
  }
}

WindowBlocks::List WindowBlocks::list_of(size_t group, const Node& node, uint32_t position) const {
  const memory::Block block = node.blocks_at(position)[group];
  const Slot& slot = lists_[group].slots[memory::block_id(block)];
  return slot.node == &node && slot.position == position ? slot.list : none;
}

}  // namespace pkv::prefix
