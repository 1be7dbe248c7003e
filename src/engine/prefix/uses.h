// Records which sessions and snapshots use which nodes. A use of a node keeps the whole path to it
// in use: no node on the path can be evicted. An unused node can be evicted once it has no
// children. How many blocks that frees is counted block by block, because a session may reference
// single blocks outside of the path that it uses (cached_blocks.h).
#pragma once

#include <memory>

#include "engine/prefix/index_data.h"

namespace pkv::prefix {

// The retention of blocks [first, last) of a text; from a time on for `duration_ms`, or without an
// end if that is 0.
struct Range {
  uint32_t first, last;
  uint8_t retention;
  uint64_t duration_ms;
};
using Ranges = std::pmr::vector<Range>;

// A use of the path to a node, which ends after `depth` blocks, and of a tail.
struct Use {
  Space* space = nullptr;
  Node* node = nullptr;
  uint32_t depth = 0;
  // The node of one block that follows the path, whose first tokens a session has, too; nullptr:
  // there is none. The session writes after them in a copy, and until then the block cannot go.
  Node* tail = nullptr;
  uint8_t retention = 0;  // of the blocks that it leaves behind
  uint8_t hint = 0;       // see hint_of
  // The retention of parts of what it leaves behind, where later ranges win; nullptr: none.
  std::shared_ptr<const Ranges> ranges = nullptr;
  // What is removed from the index when its session is closed: all from this block on.
  uint32_t drop_from = no_block;
  // Where the blocks begin that demote() lowers.
  uint32_t demote_from = no_block;
  bool passive = false;  // a store or a file copies the path: its end does not count as a use
  static constexpr uint32_t no_block = ~uint32_t{0};
};

class Uses {
 public:
  explicit Uses(IndexData& data) : data_(data) {}

  // Adds a use of the path to a node.
  void attach(Node& node) noexcept;
  // Removes a use of the path to a node. used: whether it counts as a use for the eviction order.
  void detach(Node& node, bool used) noexcept;
  // Adds block `inside` of a node, which follows the path of a use, as its tail. Throws bad_alloc.
  void attach_tail(Use& use, Node& node, uint32_t inside);
  void detach_tail(Use& use) noexcept;
  // Moves a use to another node. The common part of both paths stays in use.
  void move(Use& use, Node& node) noexcept;
  // Releases the path of a use beyond `end`, a node on that path.
  void release(Use& use, Node& end) noexcept;
  // Releases the path beyond the first `blocks` blocks, and the tail. This may have to split a
  // node; without the memory for that, the whole node is released.
  void shorten(Use& use, uint32_t blocks) noexcept;
  // Does the same where a session keeps a part of the next block, which is or becomes the tail.
  void shorten_into(Use& use, uint32_t blocks) noexcept;

  // Lowers the retention of the path from use.demote_from on.
  void demote(Use& use) noexcept;

  // Makes blocks evictable that only the index references now, in one group or in all.
  void review(size_t group, uint64_t most = UINT64_MAX) noexcept;
  void review() noexcept;
  // Does that for a bounded number of blocks in each group, more than `blocks`, so that no call
  // finds a large backlog.
  void review_some(uint64_t blocks) noexcept;

  // Reserves memory for one more node of a space, so that adding the node cannot fail. Throws
  // bad_alloc.
  void reserve_node(Space& space);
  // Returns the node that ends after `inside` blocks of a node: the node itself, or its new upper
  // part. Throws bad_alloc.
  Node& split(Node& node, uint32_t inside);
  // Returns the node that ends after the first `depth` blocks of a match. Throws bad_alloc.
  Node& end_after(const Tree::Found& found, uint32_t depth);

 private:
  void begin_use(Node& node) noexcept;
  void end_use(Node& node) noexcept;
  void leave_behind(const Use& use, const Node& end) noexcept;
  void shorten_path(Use& use, uint32_t blocks) noexcept;
  void split_at(const Use& use, uint32_t position) noexcept;
  Node& split_retained(Node& node, uint32_t inside);

  IndexData& data_;
};

}  // namespace pkv::prefix
