// The cached blocks of layer groups without a window or states. A match needs all of these blocks
// from the beginning of the text, so only blocks at the ends of texts are evicted. The class maps
// each block id to its node and counts the evictable blocks:
//
//   evictable = blocks of nodes without claims - loose blocks
//
// A block is loose if its node has no claims but something besides the index references the block:
// a session that was trimmed into it or that dropped blocks before it, or a fork made before the
// block was cached. Evicting a loose block frees no memory, but makes the block before it the end
// of a text. The index does not notice when such a reference ends; review() looks for those that
// ended.
#pragma once

#include <memory>
#include <vector>

#include "engine/memory/group.h"
#include "engine/prefix/tree.h"

namespace pkv::prefix {

class FullBlocks {
 public:
  // Throws bad_alloc.
  FullBlocks(std::span<const std::unique_ptr<memory::Group>> groups,
             std::pmr::memory_resource& memory);

  bool has(size_t group) const { return !groups_[group]->sparse(); }

  // Records that the index took a reference to a block for a position of a claimed node.
  void add(size_t group, memory::Block block, Node& node, uint32_t position) noexcept;
  // Records that the index is about to release its reference to a block of a node without claims.
  void remove(size_t group, memory::Block block) noexcept;
  // Records that the upper part of a node became a node of its own.
  void split(Node& upper) noexcept;
  // Records that the last claim on a node ended.
  void unclaim(Node& node) noexcept;
  // Records that the first claim on a node begins.
  void claim(Node& node) noexcept;
  // Finds loose blocks of a group that only the index references now. Calls visit(node) for each
  // position of a node that has no loose block left.
  template <class Visit>
  void review(size_t group, const Visit& visit) noexcept {
    for (size_t i = loose_[group].size(); i-- > 0;) {
      const uint32_t id = loose_[group][i];
      if (groups_[group]->pool.references(id) > 1) continue;
      Node& node = *slots_[group][id].node;
      if (tighten(group, id)) visit(node);
    }
  }

  // Returns how many blocks are evictable, as of the last review.
  uint64_t evictable(size_t group) const { return unclaimed_[group] - loose_[group].size(); }
  bool loose(size_t group, memory::Block block) const {
    return slots_[group][memory::block_id(block)].place != not_loose;
  }
  // Returns true if the index has a block and no pin keeps it.
  bool gives_up(size_t group, memory::Block block) const {
    const Node* const node = owner(group, block);
    return node != nullptr && node->pinned == 0;
  }
  // Returns the node that has a block, or nullptr.
  const Node* owner(size_t group, memory::Block block) const {
    return slots_[group][memory::block_id(block)].node;
  }

 private:
  static constexpr uint32_t not_loose = ~uint32_t{0};
  struct Slot {
    Node* node = nullptr;        // nullptr: the index does not have the block
    uint32_t position = 0;       // in blocks, from the beginning of the text
    uint32_t place = not_loose;  // among the loose blocks
  };
  template <class T>
  using ByGroup = std::vector<std::pmr::vector<T>>;

  // Calls visit(group, block) for all blocks of a node in full groups.
  template <class Visit>
  void for_each_block(const Node& node, const Visit& visit) const noexcept;
  bool has_loose(const Node& node, uint32_t position) const noexcept;
  // Makes a block loose.
  void loosen(size_t group, uint32_t id) noexcept;
  // Makes a block not loose. Returns true if it was the last loose one of its position.
  bool tighten(size_t group, uint32_t id) noexcept;

  const std::span<const std::unique_ptr<memory::Group>> groups_;
  ByGroup<Slot> slots_;              // by block id
  ByGroup<uint32_t> loose_;          // ids
  std::vector<uint64_t> unclaimed_;  // blocks of nodes without claims, by group
};

}  // namespace pkv::prefix
