// Who uses which nodes. A claim stands for a session or a snapshot on the path to a node: while
// there is one, all blocks of the path are in use, and none of the nodes can be evicted. Every
// other node can, as soon as it is the end of a text. What that frees is counted block by block,
// because a session may refer to single blocks that it does not claim (full_blocks.h).
#pragma once

#include "engine/prefix/contents.h"

namespace pkv::prefix {

// A claim on the path to a node, which ends after `depth` blocks.
struct Claim {
  Space* space = nullptr;
  Node* node = nullptr;
  uint32_t depth = 0;
  uint8_t retention = 0;  // of the blocks that it leaves behind
  uint8_t hint = 0;       // see hint_of
};

class Claims {
 public:
  explicit Claims(Contents& contents) : contents_(contents) {}

  // Puts the path to a node in use once more.
  void attach(Node& node) noexcept;
  // Ends a use of the path to a node. used: it counts as a use for the order of eviction.
  void detach(Node& node, bool used) noexcept;
  // Moves a claim to another node. The common part of both paths stays in use.
  void move(Claim& claim, Node& node) noexcept;
  // Gives up the path of a claim beyond `end`, a node on it.
  void give_up(Claim& claim, Node& end) noexcept;
  // Releases the path beyond the first `blocks` blocks. This may have to split a node; without the
  // memory for that, the whole node is released.
  void shorten(Claim& claim, uint32_t blocks) noexcept;

  // Makes evictable what nobody but the index refers to any more, in one group or in all.
  void review(size_t group) noexcept;
  void review() noexcept;
  // Does so in the groups that the figures of salts count.
  void review_figures() noexcept;

  // Makes room for one more node of a space, so that nobody who has to know of it can fail. Throws
  // bad_alloc.
  void reserve_node(Space& space);
  // The node that ends after `inside` blocks of a node: itself, or its new upper part. Throws
  // bad_alloc.
  Node& split(Node& node, uint32_t inside);
  // The node that ends after the first `depth` blocks of what was found. Throws bad_alloc.
  Node& end_after(const Tree::Match& found, uint32_t depth);

 private:
  void claim(Node& node) noexcept;
  void unclaim(Node& node) noexcept;

  Contents& contents_;
};

}  // namespace pkv::prefix
