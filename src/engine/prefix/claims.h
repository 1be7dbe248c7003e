// Who uses which nodes. A claim stands for a session or a snapshot on the path to a node: while
// there is one, all blocks of the path are in use. When the last claim on a node ends and its
// blocks have other references (a session that was trimmed into a block, a fork or a snapshot from
// before a block was cached), the index keeps that claim itself until these references are gone. So
// the blocks of nodes without claims have no other reference: they are evictable, and evicting one
// frees it.
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
  Claims(Contents& contents, std::pmr::memory_resource& memory)
      : contents_(contents), unclaimed_(&memory) {}

  // Puts the path to a node in use once more.
  void attach(Node& node) noexcept;
  // Ends a use of the path to a node. used: it counts as a use for the order of eviction.
  void detach(Node& node, bool used) noexcept;
  // Moves a claim to another node. The common part of both paths stays in use.
  void move(Claim& claim, Node& node) noexcept;
  // Gives up the path of a claim beyond `end`, a node on it.
  void give_up(Claim& claim, Node& end) noexcept;
  // Gives up the path beyond so many blocks. This may have to split a node; without the memory for
  // it the whole node is given up.
  void shorten(Claim& claim, uint32_t blocks) noexcept;

  // Makes evictable what the index kept in use because of references that are gone now.
  void review_unclaimed() noexcept;
  // Makes a node a candidate, whoever refers to its blocks. Returns false if it is claimed or has
  // children.
  bool unclaim(Node& node) noexcept;

  // Makes room for one more node of a space, so that nobody who has to know of it can fail. Throws
  // bad_alloc.
  void reserve_node(Space& space);
  // The node that ends after `inside` blocks of a node: itself, or its new upper part. Throws
  // bad_alloc.
  Node& split(Node& node, uint32_t inside);
  // The node that ends after the first `depth` blocks of what was found. Throws bad_alloc.
  Node& end_after(const Tree::Match& found, uint32_t depth);

 private:
  void count_evictable(Node& node, bool evictable) noexcept;
  uint32_t count_referenced(const Node& node) const noexcept;
  Node& keep(Node& node, uint32_t blocks) noexcept;

  Contents& contents_;
  // Nodes that the index keeps in use because of references that no claim stands for.
  std::pmr::vector<Node*> unclaimed_;
};

}  // namespace pkv::prefix
