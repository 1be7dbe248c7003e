// A binary heap of nodes, with the next one to evict on top. Each node stores its place in the
// heap, so that any node can be removed.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/prefix/tree.h"

namespace pkv::prefix {

class NodeHeap {
 public:
  using Sooner = bool (*)(const Node& a, const Node& b);
  // place: the member of a node that holds its place.
  NodeHeap(Sooner sooner, uint32_t Node::* place, std::pmr::memory_resource& memory)
      : sooner_(sooner), place_(place), nodes_(&memory) {}

  // Makes room for this many nodes, so that add() cannot fail. Throws bad_alloc.
  void reserve(size_t nodes) {
    if (nodes_.capacity() < nodes) nodes_.reserve(std::max(nodes, nodes_.capacity() * 2));
  }
  void add(Node& node) noexcept;
  void remove(Node& node) noexcept;  // does nothing if it is not there
  void clear() noexcept;
  Node* first() const { return nodes_.empty() ? nullptr : nodes_.front(); }
  std::span<Node* const> nodes() const { return nodes_; }
  // Checks that nodes know their places, and that none goes before the one above it. Throws
  // INTERNAL.
  void validate() const;

 private:
  void put(Node* node, size_t place) noexcept;
  void rise(size_t place) noexcept;
  void sink(size_t place) noexcept;

  Sooner sooner_;
  uint32_t Node::* place_;
  std::pmr::vector<Node*> nodes_;
};

}  // namespace pkv::prefix
