// Policies with a fixed order: they evict the least recently used node first, or the least
// frequently matched one and among equals the least recently used.
#pragma once

#include "engine/prefix/node_heap.h"
#include "engine/prefix/policy.h"

namespace pkv::prefix {

// Orders by retention, then by the time of the last use.
bool used_longer_ago(const Node& a, const Node& b);

class OrderedPolicy final : public Policy {
 public:
  OrderedPolicy(bool by_frequency, std::pmr::memory_resource& memory);
  void reserve(size_t nodes) override { candidates_.reserve(nodes); }
  void add(Node& node) noexcept override { candidates_.add(node); }
  void remove(Node& node) noexcept override { candidates_.remove(node); }
  std::array<std::span<Node* const>, retentions> candidates() const override {
    return {candidates_.nodes()};
  }
  Node* victim() noexcept override { return candidates_.first(); }
  void validate() const override { candidates_.validate(); }

 private:
  NodeHeap candidates_;
};

}  // namespace pkv::prefix
