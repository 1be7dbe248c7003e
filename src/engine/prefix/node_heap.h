// The eviction policies with a fixed order: a binary heap of candidates, with the next one to evict
// on top. Each node stores its place in the heap, so that any node can be removed. A salt with a
// quota also has such a heap, of its own candidates.
#pragma once

#include <vector>

#include "engine/prefix/policy.h"

namespace pkv::prefix {

// Both order nodes by retention first. Then the least recently used node goes first.
bool used_longer_ago(const Node& a, const Node& b);
// Here the least frequently matched node goes first, and among equals the least recently used.
bool matched_less_often(const Node& a, const Node& b);

class NodeHeap final : public Policy {
 public:
  using Sooner = bool (*)(const Node& a, const Node& b);
  // place: the member of a node that holds its place.
  NodeHeap(Sooner sooner, uint32_t Node::* place, std::pmr::memory_resource& memory)
      : sooner_(sooner), place_(place), nodes_(&memory) {}

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

  Sooner sooner_;
  uint32_t Node::* place_;
  std::pmr::vector<Node*> nodes_;
};

}  // namespace pkv::prefix
