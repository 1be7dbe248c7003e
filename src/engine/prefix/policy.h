// Which cached blocks go first when room is needed. Candidates are the nodes that nobody uses and
// that have no children; of the one chosen, blocks go from the end. One of a lower retention goes
// before all of a higher. What a policy knows of a node changes only while it is no candidate.
#pragma once

#include <pagedkv/cache.h>

#include <array>
#include <memory>

#include "engine/prefix/node_heap.h"

namespace pkv::prefix {

class Policy {
 public:
  // capacity: blocks of the cache. Throws bad_alloc.
  static std::unique_ptr<Policy> make(pkv_eviction kind, uint64_t capacity,
                                      std::pmr::memory_resource& memory);
  virtual ~Policy() = default;

  // Room for so many candidates: add() cannot fail then. Throws bad_alloc.
  virtual void reserve(size_t nodes) = 0;
  virtual void add(Node& node) noexcept = 0;
  virtual void remove(Node& node) noexcept = 0;  // fine where it is no candidate
  // By retention; of a policy that does not tell them apart, all in one.
  static constexpr size_t retentions = 3;
  virtual std::array<std::span<Node* const>, retentions> candidates() const = 0;
  // The next to lose blocks; nullptr: there is none.
  virtual Node* victim() noexcept = 0;

  // What a policy may learn from. New blocks, from the beginning of a text on: how they were used
  // before, if that is known.
  virtual void inserted(std::span<const uint64_t>, std::span<History>) noexcept {}
  // A use of the path to a node has ended; what of it lies after `from` blocks is given up. now:
  // blocks given up so far.
  virtual void used(Node&, uint32_t, uint64_t) noexcept {}
  // A candidate is about to lose its last `count` blocks.
  virtual void evicted(Node&, uint32_t) noexcept {}
};

// The least recently used first.
bool used_longer_ago(const Node& a, const Node& b);

// In a fixed order: the least recently used, or the least frequently matched and of these the least
// recently used.
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

 private:
  NodeHeap candidates_;
};

}  // namespace pkv::prefix
