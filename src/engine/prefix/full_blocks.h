// The cached blocks of layer groups that see the whole text. A match needs all of them from the
// beginning on, so they leave the index from the ends of texts only. For each block id this tells
// which node has the block, and it counts what is evictable:
//
//   evictable = blocks of nodes that nobody claims - loose blocks
//
// A block is loose if nobody claims its node and yet somebody besides the index refers to it: a
// session that was trimmed into it or that dropped blocks before it, or a fork of before the block
// was cached. Evicting it frees no memory, but makes what lies before it the end of a text. Such
// references end without the index's knowing; review() finds those that did.
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

  // The index took a reference to a block for a position of a node that is claimed.
  void add(size_t group, memory::Block block, Node& node, uint32_t position) noexcept;
  // The index is about to give up its reference to a block of a node that nobody claims.
  void remove(size_t group, memory::Block block) noexcept;
  // The upper part of a node became a node of its own.
  void split(Node& upper) noexcept;
  // The last claim on a node ended.
  void unclaim(Node& node) noexcept;
  // The first claim on a node begins.
  void claim(Node& node) noexcept;
  // Finds loose blocks of a group to which nobody but the index refers any more. Calls visit(node)
  // for each position of a node that has no loose block left.
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

  // Calls visit(group, position, block) for all blocks of a node.
  template <class Visit>
  void for_each_block(const Node& node, const Visit& visit) const noexcept;
  bool has_loose(const Node& node, uint32_t position) const noexcept;
  // A block gets loose.
  void loosen(size_t group, uint32_t id) noexcept;
  // A block is loose no longer. Returns true if it was the last one of its position.
  bool tighten(size_t group, uint32_t id) noexcept;

  const std::span<const std::unique_ptr<memory::Group>> groups_;
  ByGroup<Slot> slots_;              // by block id
  ByGroup<uint32_t> loose_;          // ids
  std::vector<uint64_t> unclaimed_;  // blocks of nodes that nobody claims, by group
};

}  // namespace pkv::prefix
