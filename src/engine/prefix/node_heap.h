// The eviction policy LRU: a binary heap of candidates. Those with the lowest retention are evicted
// first, and among these the least recently used one. Each node stores its place in the heap, so
// that any node can be removed. A salt with a quota also has such a heap, of its own candidates.
#pragma once

#include <vector>

#include "engine/prefix/policy.h"

namespace pkv::prefix {

class NodeHeap final : public Policy {
 public:
  // place: the member of a node that holds its place.
  NodeHeap(uint32_t Node::* place, std::pmr::memory_resource& memory)
      : place_(place), nodes_(&memory) {}

  void reserve(size_t nodes) override {
    if (nodes_.capacity() < nodes) nodes_.reserve(std::max(nodes, nodes_.capacity() * 2));
  }
  void add(Node& node) noexcept override;
  void remove(Node& node) noexcept override;
  void clear() noexcept;
  std::array<std::span<Node* const>, retentions> candidates() const override { return {nodes_}; }
  Node* victim() noexcept override { return nodes_.empty() ? nullptr : nodes_.front(); }
  void validate() const override;

 private:
  void put(Node* node, size_t place) noexcept;
  void rise(size_t place) noexcept;
  void sink(size_t place) noexcept;

  uint32_t Node::* place_;
  std::pmr::vector<Node*> nodes_;
};

}  // namespace pkv::prefix
