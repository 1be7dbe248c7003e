// Which cached blocks go first when room is needed. Candidates are the nodes that nobody uses and that have no children; of the one chosen, the
// last block goes. A node's key changes only by touch().
#pragma once

#include <pagedkv/cache.h>

#include <vector>

#include "engine/prefix/tree.h"

namespace pkv {

class Policy {
 public:
  Policy(pkv_eviction kind, std::pmr::memory_resource& memory) : kind_(kind), heap_(&memory) {}

  // Room for so many candidates: add() cannot fail then. Throws bad_alloc.
  void reserve(size_t nodes) { if (heap_.capacity() < nodes) heap_.reserve(std::max(nodes, heap_.capacity() * 2)); }
  void add(Node& node) noexcept;
  void remove(Node& node) noexcept;  // fine where it is no candidate
  // The next to lose a block; nullptr: there is none.
  Node* victim() const noexcept { return heap_.empty() ? nullptr : heap_.front(); }
  std::span<Node* const> candidates() const { return heap_; }

 private:
  bool sooner(const Node& a, const Node& b) const;
  void rise(uint32_t place) noexcept;
  void sink(uint32_t place) noexcept;
  void put(Node* node, uint32_t place) noexcept;

  const pkv_eviction kind_;
  std::pmr::vector<Node*> heap_;  // a binary heap, the first to go in front; Node::place is the index
};

}  // namespace pkv
