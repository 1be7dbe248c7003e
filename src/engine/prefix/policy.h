// Which cached blocks go first when room is needed. Candidates are the nodes that nobody uses and that have no children; of the one chosen,
// blocks go from the end. What a policy knows of a node changes only while it is no candidate.
#pragma once

#include <pagedkv/cache.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "engine/prefix/tree.h"

namespace pkv {

class Policy {
 public:
  // capacity: blocks of the cache. Throws bad_alloc.
  static std::unique_ptr<Policy> make(pkv_eviction kind, uint64_t capacity, std::pmr::memory_resource& memory);
  virtual ~Policy() = default;

  // Room for so many candidates: add() cannot fail then. Throws bad_alloc.
  void reserve(size_t nodes) { if (candidates_.capacity() < nodes) candidates_.reserve(std::max(nodes, candidates_.capacity() * 2)); }
  std::span<Node* const> candidates() const { return candidates_; }
  virtual void add(Node& node) noexcept = 0;
  virtual void remove(Node& node) noexcept = 0;  // fine where it is no candidate
  // The next to lose blocks; nullptr: there is none.
  virtual Node* victim() noexcept = 0;

  // What a policy may learn from. New blocks, from the beginning of a text on: how they were used before, if that is known.
  virtual void inserted(std::span<const uint64_t>, std::span<History>) noexcept {}
  // A use of the path to a node has ended; what of it lies after `from` blocks is given up. now: blocks given up so far.
  virtual void used(Node&, uint32_t, uint64_t) noexcept {}
  // A candidate is about to lose its last `count` blocks for want of memory.
  virtual void evicted(Node&, uint32_t) noexcept {}

 protected:
  explicit Policy(std::pmr::memory_resource& memory) : candidates_(&memory) {}
  void put(Node* node, size_t place) noexcept {
    candidates_[place] = node;
    node->place = static_cast<uint32_t>(place);
  }

  std::pmr::vector<Node*> candidates_;  // Node::place is the index
};

// By a heap: the least recently used, or the least frequently matched and of these the least recently used.
class OrderedPolicy final : public Policy {
 public:
  OrderedPolicy(bool by_frequency, std::pmr::memory_resource& memory) : Policy(memory), by_frequency_(by_frequency) {}
  void add(Node& node) noexcept override;
  void remove(Node& node) noexcept override;
  Node* victim() noexcept override { return candidates_.empty() ? nullptr : candidates_.front(); }

 private:
  bool sooner(const Node& a, const Node& b) const;
  void rise(size_t place) noexcept;
  void sink(size_t place) noexcept;

  const bool by_frequency_;
};

}  // namespace pkv
