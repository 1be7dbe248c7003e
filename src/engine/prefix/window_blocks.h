// The cached blocks of layer groups with a window or with states. A match needs only the last
// window before its end, or the state there, so these blocks are evicted one by one, while their
// positions stay cached in the other groups. Each block is in one list of its group:
//
//   held   something besides the index references it, or did at the last review; or a pin keeps it
//   inner  only a match that ends inside of a node needs it
//   edge   a match that ends where a node ends needs it, or it holds sinks
//
// Blocks of the last two lists are evictable, whether their node is in use or not, least recently
// used first. A node ends where a text ended or where texts diverged, so inner blocks are evicted
// before all others. The first of them are inner states that a text left as it grew block by block:
// other texts hardly ever end there, but may well end where a prompt did.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/memory/coverage.h"
#include "engine/prefix/tree.h"

namespace pkv::prefix {

class WindowBlocks {
 public:
  enum List : uint8_t { held, inner, edge, none };
  struct Place {
    Node* node;
    uint32_t position;  // in blocks, from the beginning of the text
    uint32_t id;
  };

  // Throws bad_alloc.
  WindowBlocks(std::span<const std::unique_ptr<memory::Group>> groups,
               std::pmr::memory_resource& memory);

  bool has(size_t group) const { return groups_[group]->sparse(); }
  // Returns which blocks a match needs.
  memory::Coverage coverage(size_t group) const { return memory::Coverage(*groups_[group]); }
  // Returns true if only a match that ends inside of the node needs the block of a position.
  bool is_inner(size_t group, const Node& node, uint32_t position) const {
    return !coverage(group).needs(position, node.end());
  }

  // See Contents::add_block.
  void add(size_t group, memory::Block block, Node& node, uint32_t position, bool passing) noexcept;
  // Records that the index is about to release its reference to a block.
  void remove(size_t group, memory::Block block) noexcept;
  // Records that something besides the index takes a reference to a block.
  void hold(size_t group, memory::Block block) noexcept;
  // Makes blocks evictable that only the index references now.
  void review(size_t group) noexcept;
  // The upper part of a node became a node of its own.
  void split(Node& upper) noexcept;
  // A node got longer than `end`: blocks that a match at its old end needed may be inner ones now.
  void extended(Node& node, uint32_t end) noexcept;
  // A pin keeps what a match at the end of this node needs.
  void pin(Node& node) noexcept;

  // Returns true if the index has a block.
  bool contains(size_t group, memory::Block block) const {
    return lists_[group].slots[memory::block_id(block)].list != none;
  }
  // Returns true if the index has a block and no pin keeps it.
  bool gives_up(size_t group, memory::Block block) const;
  // Returns how many blocks are evictable, as of the last review.
  uint64_t evictable(size_t group) const { return lists_[group].evictable; }
  // Calls visit(group, id) for every evictable block, as of the last review.
  template <class Visit>
  void for_each_evictable(const Visit& visit) const {
    for (size_t g = 0; g < groups_.size(); g++) {
      if (!has(g)) continue;
      const std::pmr::vector<Slot>& slots = lists_[g].slots;
      for (const List list : {inner, edge})
        for (uint32_t id = slots[head(g, list)].after; id != head(g, list); id = slots[id].after)
          visit(g, id);
    }
  }
  // Returns the block that goes next, of the inner ones or of the others.
  std::optional<Place> first(size_t group, List list) noexcept;
  // Returns the list that a block is in, or `none`.
  List list_of(size_t group, const Node& node, uint32_t position) const;

 private:
  // A link of a ring; the last three slots of a group are the heads of its lists.
  struct Slot {
    Node* node = nullptr;
    uint32_t position = 0;
    uint32_t before = 0, after = 0;
    List list = none;
    bool passing = false;
  };
  struct Lists {
    std::pmr::vector<Slot> slots;  // by block id
    uint64_t evictable = 0;
  };

  uint32_t head(size_t group, List list) const;
  // Moves a block to the end of a list, or to the beginning of `inner` if it is a passing state.
  void move(size_t group, uint32_t id, List list) noexcept;
  // Calls visit(group, block) for what a match at the end of a node needs of the node.
  template <class Visit>
  void for_each_edge(Node& node, const Visit& visit) noexcept;

  const std::span<const std::unique_ptr<memory::Group>> groups_;
  std::vector<Lists> lists_;  // by group
};

}  // namespace pkv::prefix
