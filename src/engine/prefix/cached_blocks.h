// The blocks that the index has, by layer group and block id, and which of them can be evicted.
//
// A match needs all blocks of a full group, from the beginning of the text. So these are evicted
// from the ends of unused nodes, all groups of a position together:
//
//   evictable = blocks of unused nodes - shared ones
//
// A block of an unused node is shared if something besides the index references it: a session that
// was trimmed into it or that dropped blocks before it, or a fork made before the block was cached.
// Evicting it frees no memory, but makes the block before it the end of a text.
//
// A sparse group has a window or states. A match needs only the last window before its end, or the
// state there, so these blocks are evicted one by one, least recently used first, whether their
// node is used or not; their positions stay cached in the other groups. Such a block is shared, or
//
//   inner  only a match that ends inside a node needs it
//   edge   a match that ends where a node ends needs it, or it holds sinks
//
// A node ends where a text ended or where texts diverged, so inner blocks are evicted before all
// others. The first of them are inner states that a text left as it grew block by block: other
// texts hardly ever end there, but may well end where a prompt did.
//
// Other references end without the lock of the index. The pools list the blocks that are left with
// one (memory::Pool::take_alone()), and review() looks at these. So after a review of all of them:
//
//   shared = blocks with other references + blocks that a pin keeps
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/memory/coverage.h"
#include "engine/prefix/tree.h"

namespace pkv::prefix {

class CachedBlocks {
 public:
  // shared: something besides the index references the block, or did at the last review; or a pin
  // keeps the block of a sparse group. In full groups, only blocks of unused nodes are in a list,
  // and only in this one.
  enum List : uint8_t { shared, inner, edge, none };
  struct Place {
    Node* node;
    uint32_t position;  // in blocks, from the beginning of the text
  };

  // Throws bad_alloc.
  CachedBlocks(std::span<const std::unique_ptr<memory::Group>> groups,
               std::pmr::memory_resource& memory);

  bool sparse(size_t group) const { return groups_[group]->sparse(); }
  // Returns which blocks a match needs.
  memory::Coverage coverage(size_t group) const { return memory::Coverage(*groups_[group]); }
  // Returns true if only a match that ends inside the node needs the block of a position.
  bool is_inner(size_t group, const Node& node, uint32_t position) const {
    return !coverage(group).needs(position, node.end());
  }

  // Records that the index took a reference to a block for a position of a used node. generated:
  // the block came alone, as while a text is generated.
  void add(size_t group, memory::Block block, Node& node, uint32_t position,
           bool generated) noexcept;
  // Records that the index is about to release its reference to a block. If it is of a full group,
  // its node is unused.
  void remove(size_t group, memory::Block block) noexcept;
  // Records that something besides the index takes a reference to a block of a used node.
  void share(size_t group, memory::Block block) noexcept {
    if (sparse(group)) move(group, memory::block_id(block), shared);
  }
  // Finds shared blocks of a group that only the index references now, among the next `most` that
  // the pool lists. Calls visit(node) for each position of an unused node that has no shared block
  // of a full group left.
  template <class Visit>
  void review(size_t group, uint64_t most, const Visit& visit) noexcept {
    for (; most > 0; most--) {
      const std::optional<uint32_t> id = groups_[group]->pool.take_alone();
      if (!id) return;
      if (!sparse(group) && is_only_ours(group, *id)) {
        if (unshare(group, *id)) visit(*blocks_[group].links[*id].node);
      } else {
        review_sparse(group, *id);
      }
    }
  }

  // Records that the first use of a node begins, or that the last one ended.
  void begin_use(Node& node) noexcept;
  void end_use(Node& node) noexcept;
  // Records that the upper part of a node became a node of its own.
  void split(Node& upper) noexcept;
  // Records that a node got longer than `end`: blocks that a match at its old end needed may be
  // inner ones now.
  void extended(Node& node, uint32_t end) noexcept;
  // Records that a pin keeps what a match at the end of this node needs, or that no pin does now.
  void pin(Node& node) noexcept;
  void unpin(Node& node) noexcept;

  // Returns where the index has a block; the node is nullptr if it does not have it.
  Place place_of(size_t group, uint32_t id) const {
    const BlockLink& link = blocks_[group].links[id];
    return {link.node, link.position};
  }
  bool has(size_t group, memory::Block block) const {
    return place_of(group, memory::block_id(block)).node != nullptr;
  }
  // Returns the list that a block is in, or `none`.
  List list_of(size_t group, memory::Block block) const {
    return blocks_[group].links[memory::block_id(block)].list;
  }
  // Returns whether a block of a sparse group that the index has is kept by pins of its node, as
  // long as there are any.
  bool kept_by_pin(size_t group, uint32_t id) const {
    const BlockLink& link = blocks_[group].links[id];
    return sparse(group) && link.list == shared && !is_inner(group, *link.node, link.position);
  }
  // Calls visit(group, id) for what a match at the end of a node needs of the node in sparse
  // groups.
  template <class Visit>
  void for_each_edge(const Node& node, const Visit& visit) const {
    for (size_t g = 0; g < groups_.size(); g++) {
      if (!sparse(g)) continue;
      const memory::Coverage needed = coverage(g);
      const uint64_t end = node.end(), window = end - std::min<uint64_t>(end, needed.window);
      for (uint64_t position = node.start; position < end; position++) {
        if (position >= needed.sinks) position = std::max(position, window);
        if (const memory::Block block = node.blocks_at(position)[g]; block != memory::no_block)
          visit(g, memory::block_id(block));
      }
    }
  }
  // Returns true if the index has a block and no pin keeps it.
  bool has_unpinned(size_t group, uint32_t id) const;
  // Returns how many blocks are evictable, as of the last review.
  uint64_t evictable(size_t group) const { return blocks_[group].evictable; }
  // Returns the next block of a sparse group to evict, of the inner ones or of the others.
  std::optional<Place> first(size_t group, List list) noexcept;

 private:
  // A link of a ring; the last three links of a group are the heads of its lists.
  struct BlockLink {
    Node* node = nullptr;   // nullptr: the index does not have the block
    uint32_t position = 0;  // in blocks, from the beginning of the text
    uint32_t before = 0, after = 0;
    List list = none;
    bool generated = false;
  };
  struct Blocks {
    std::pmr::vector<BlockLink> links;  // by block id
    uint64_t evictable = 0;
  };

  uint32_t head(size_t group, List list) const { return groups_[group]->pool.blocks() + list; }
  // Returns true if a block is listed as shared, but only the index references it.
  bool is_only_ours(size_t group, uint32_t id) const {
    return blocks_[group].links[id].list == shared && groups_[group]->pool.references(id) == 1;
  }
  // Makes a shared block of a sparse group evictable if neither a reference nor a pin keeps it.
  void review_sparse(size_t group, uint32_t id) noexcept;
  // Counts a block as evictable or not.
  void set_evictable(size_t group, uint32_t id, bool now) noexcept;
  // Moves a block to the end of a list, or a state of generated text to the beginning of `inner`.
  void move(size_t group, uint32_t id, List list) noexcept;
  bool has_shared(const Node& node, uint32_t position) const noexcept;
  // Takes the block of a full group out of its list. Returns true if it was the last one of its
  // position.
  bool unshare(size_t group, uint32_t id) noexcept;

  const std::span<const std::unique_ptr<memory::Group>> groups_;
  std::vector<Blocks> blocks_;  // by group
};

}  // namespace pkv::prefix
