// The policy that a cache has by default. It orders the candidates in one of several ways
// (order.h): in the one that it has learned, or in another one where miniatures of the cache
// (miniatures.h) show that this finds more.
#pragma once

#include <optional>

#include "engine/prefix/ghosts.h"
#include "engine/prefix/miniatures.h"
#include "engine/prefix/policy.h"

namespace pkv::prefix {

class AdaptivePolicy final : public Policy {
 public:
  // adaptive: false keeps the learned order. weight_per_block: see Judge.
  AdaptivePolicy(uint64_t capacity, bool adaptive, double weight_per_block,
                 std::pmr::memory_resource& memory);
  void reserve(size_t nodes) override;
  void add(Node& node) noexcept override;
  void remove(Node& node) noexcept override;
  std::array<std::span<Node* const>, retentions> candidates() const override {
    return {candidates_[0].nodes, candidates_[1].nodes, candidates_[2].nodes};
  }
  Node* victim() noexcept override;
  void inserted(std::span<const uint64_t> hashes, std::span<History> histories) noexcept override;
  void used(Node& end, uint32_t from, uint8_t hint, uint64_t now) noexcept override;
  void evicted(Node& node, uint32_t count) noexcept override;

 private:
  // The candidates of one retention; Node::place is the index in both lists. Facts lie apart from
  // the nodes, so that a look at many of them stays in the processor's caches.
  struct Candidates {
    explicit Candidates(std::pmr::memory_resource& memory) : nodes(&memory), facts(&memory) {}
    std::pmr::vector<Node*> nodes;
    std::pmr::vector<Facts> facts;
  };
  Node* lowest(const Candidates& candidates) const noexcept;
  Order order() const { return miniatures_ ? miniatures_->best() : Order::learned; }

  std::array<Candidates, retentions> candidates_;
  ReturnTimes times_;
  const Judge judge_;
  Ghosts ghosts_;
  std::optional<Miniatures> miniatures_;
  Shortlist<Node*> shortlist_;
  Order shortlist_order_ = Order::learned;
  uint8_t shortlist_retention_ = 0;
  uint64_t now_ = 0;
  Dice dice_;
  Node* next_ = nullptr;  // what the last victim leaves, which is likely as good a choice
};

}  // namespace pkv::prefix
