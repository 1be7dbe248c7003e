#include "engine/prefix/full_blocks.h"

namespace pkv::prefix {

FullBlocks::FullBlocks(std::span<const std::unique_ptr<memory::Group>> groups,
                       std::pmr::memory_resource& memory)
    : groups_(groups), unclaimed_(groups.size()) {
  for (size_t g = 0; g < groups.size(); g++) {
    const size_t blocks = has(g) ? groups[g]->pool.blocks() : 0;
    slots_.emplace_back(blocks, &memory);
    loose_.emplace_back(&memory).reserve(blocks);
  }
}

template <class Visit>
void FullBlocks::for_each_block(const Node& node, const Visit& visit) const noexcept {
  node.for_each_block([&](uint32_t, size_t group, memory::Block block) {
    if (has(group)) visit(group, block);
  });
}

void FullBlocks::add(size_t group, memory::Block block, Node& node, uint32_t position) noexcept {
  slots_[group][memory::block_id(block)] = {&node, position};
}

void FullBlocks::remove(size_t group, memory::Block block) noexcept {
  if (loose(group, block)) tighten(group, memory::block_id(block));
  slots_[group][memory::block_id(block)] = {};
  unclaimed_[group]--;
}

void FullBlocks::split(Node& upper) noexcept {
  Node& lower = **upper.children.begin();
  for_each_block(upper, [&](size_t group, memory::Block block) {
    slots_[group][memory::block_id(block)].node = &upper;
  });
  if (lower.loose == 0) return;
  for (uint32_t i = 0; i < upper.size; i++) upper.loose += has_loose(upper, upper.start + i);
  lower.loose -= upper.loose;
}

void FullBlocks::unclaim(Node& node) noexcept {
  for_each_block(node, [&](size_t group, memory::Block block) {
    unclaimed_[group]++;
    if (groups_[group]->pool.references(memory::block_id(block)) > 1)
      loosen(group, memory::block_id(block));
  });
}

void FullBlocks::claim(Node& node) noexcept {
  for (size_t g = 0; g < groups_.size(); g++)
    if (has(g)) unclaimed_[g] -= node.size;
  if (node.loose == 0) return;
  for_each_block(node, [&](size_t group, memory::Block block) {
    if (loose(group, block)) tighten(group, memory::block_id(block));
  });
}

bool FullBlocks::has_loose(const Node& node, uint32_t position) const noexcept {
  for (size_t g = 0; g < groups_.size(); g++)
    if (has(g) && loose(g, node.blocks_at(position)[g])) return true;
  return false;
}

void FullBlocks::loosen(size_t group, uint32_t id) noexcept {
  Slot& slot = slots_[group][id];
  slot.node->loose += !has_loose(*slot.node, slot.position);
  slot.place = static_cast<uint32_t>(loose_[group].size());
  loose_[group].push_back(id);
}

bool FullBlocks::tighten(size_t group, uint32_t id) noexcept {
  Slot& slot = slots_[group][id];
  const uint32_t last = loose_[group].back();
  loose_[group][slot.place] = last;
  slots_[group][last].place = slot.place;
  loose_[group].pop_back();
  slot.place = not_loose;
  const bool none_left = !has_loose(*slot.node, slot.position);
  slot.node->loose -= none_left;
  return none_left;
}

}  // namespace pkv::prefix
