#include "engine/prefix/cached_blocks.h"

#include <algorithm>

namespace pkv::prefix {

CachedBlocks::CachedBlocks(std::span<const std::unique_ptr<memory::Group>> groups,
                           std::pmr::memory_resource& memory)
    : groups_(groups) {
  for (size_t g = 0; g < groups.size(); g++) {
    auto& links = blocks_.emplace_back(Blocks{std::pmr::vector<BlockLink>(&memory)}).links;
    links.resize(size_t{groups[g]->pool.blocks()} + none);
    for (const List list : {shared, inner, edge})
      links[head(g, list)].before = links[head(g, list)].after = head(g, list);
    groups[g]->pool.list_alone();
  }
}

void CachedBlocks::set_evictable(size_t group, uint32_t id, bool now) noexcept {
  blocks_[group].evictable += now ? 1 : ~uint64_t{0};
  if (memory::PageUse* const use = groups_[group]->pool.page_use()) use->set_reclaimable(id, now);
}

void CachedBlocks::move(size_t group, uint32_t id, List list) noexcept {
  std::pmr::vector<BlockLink>& links = blocks_[group].links;
  // Blocks of full groups that are in no list are counted with their nodes.
  const auto can_go = [&](List in) {
    return sparse(group) ? in == inner || in == edge : in == none;
  };
  BlockLink& link = links[id];
  if (can_go(list) != can_go(link.list)) set_evictable(group, id, can_go(list));
  if (link.list != none) {
    links[link.before].after = link.after;
    links[link.after].before = link.before;
  }
  link.list = list;
  if (list == none) return;
  const bool first = list == inner && link.generated && groups_[group]->has_states();
  link.after = first ? links[head(group, list)].after : head(group, list);
  link.before = links[link.after].before;
  links[link.before].after = links[link.after].before = id;
}

void CachedBlocks::add(size_t group, memory::Block block, Node& node, uint32_t position,
                       bool generated) noexcept {
  BlockLink& link = blocks_[group].links[memory::block_id(block)];
  link.node = &node;
  link.position = position;
  link.generated = generated;
  share(group, block);
}

void CachedBlocks::remove(size_t group, memory::Block block) noexcept {
  const uint32_t id = memory::block_id(block);
  if (sparse(group)) {
    move(group, id, none);
  } else {
    if (list_of(group, block) == shared) unshare(group, id);
    set_evictable(group, id, false);
  }
  blocks_[group].links[id].node = nullptr;
}

void CachedBlocks::begin_use(Node& node) noexcept {
  node.for_each_block([&](uint32_t, size_t group, memory::Block block) {
    if (sparse(group)) return;
    if (node.shared > 0 && list_of(group, block) == shared) unshare(group, memory::block_id(block));
    set_evictable(group, memory::block_id(block), false);
  });
}

void CachedBlocks::end_use(Node& node) noexcept {
  node.for_each_block([&](uint32_t position, size_t group, memory::Block block) {
    if (sparse(group)) return;
    const uint32_t id = memory::block_id(block);
    set_evictable(group, id, true);
    if (groups_[group]->pool.references(id) == 1) return;
    node.shared += !has_shared(node, position);
    move(group, id, shared);
  });
}

bool CachedBlocks::has_shared(const Node& node, uint32_t position) const noexcept {
  const std::span<const memory::Block> blocks = node.blocks_at(position);
  for (size_t g = 0; g < blocks.size(); g++)
    if (!sparse(g) && list_of(g, blocks[g]) == shared) return true;
  return false;
}

bool CachedBlocks::unshare(size_t group, uint32_t id) noexcept {
  const BlockLink& link = blocks_[group].links[id];
  move(group, id, none);
  const bool none_left = !has_shared(*link.node, link.position);
  link.node->shared -= none_left;
  return none_left;
}

void CachedBlocks::split(Node& upper) noexcept {
  Node& lower = **upper.children.begin();
  upper.for_each_block([&](uint32_t, size_t group, memory::Block block) {
    if (block != memory::no_block) blocks_[group].links[memory::block_id(block)].node = &upper;
  });
  for_each_edge(upper, [&](size_t group, uint32_t id) {
    if (blocks_[group].links[id].list == inner) move(group, id, edge);
  });
  if (lower.shared == 0) return;
  for (uint32_t i = 0; i < upper.size; i++) upper.shared += has_shared(upper, upper.start + i);
  lower.shared -= upper.shared;
}

void CachedBlocks::extended(Node& node, uint32_t end) noexcept {
  for (size_t g = 0; g < groups_.size(); g++) {
    if (!sparse(g)) continue;
    const auto window = static_cast<uint32_t>(std::min<uint64_t>(end, coverage(g).window));
    for (uint32_t position = std::max(node.start, end - window);
         position < end && is_inner(g, node, position); position++) {
      const memory::Block block = node.blocks_at(position)[g];
      if (block != memory::no_block && list_of(g, block) == edge)
        move(g, memory::block_id(block), inner);
    }
  }
}

void CachedBlocks::pin(Node& node) noexcept {
  for_each_edge(node, [&](size_t group, uint32_t id) { move(group, id, shared); });
}

void CachedBlocks::unpin(Node& node) noexcept {
  for_each_edge(node, [&](size_t group, uint32_t id) { review_sparse(group, id); });
}

bool CachedBlocks::has_unpinned(size_t group, uint32_t id) const {
  const BlockLink& link = blocks_[group].links[id];
  return link.node != nullptr &&
         (link.node->pinned == 0 || is_inner(group, *link.node, link.position));
}

// An inner block can go although its node is pinned. A block of an unused node of a full group is
// reviewed by the caller.
void CachedBlocks::review_sparse(size_t group, uint32_t id) noexcept {
  if (!sparse(group) || !is_only_ours(group, id)) return;
  const BlockLink& link = blocks_[group].links[id];
  const bool in_node = is_inner(group, *link.node, link.position);
  if (in_node || link.node->pinned == 0) move(group, id, in_node ? inner : edge);
}

std::optional<CachedBlocks::Place> CachedBlocks::first(size_t group, List list) noexcept {
  const std::pmr::vector<BlockLink>& links = blocks_[group].links;
  for (;;) {
    const uint32_t id = links[head(group, list)].after;
    if (id == head(group, list)) return std::nullopt;
    const BlockLink& link = links[id];
    // The node may have become shorter since the block was found to be an inner one.
    if (list == edge || is_inner(group, *link.node, link.position))
      return Place{link.node, link.position};
    move(group, id, edge);
  }
}

}  // namespace pkv::prefix
