// The default policy of a cache: it evicts the block with the fewest expected hits per time that it
// is held, as learned from when similar blocks were used again (return_time.h).
#pragma once

#include "engine/prefix/ghosts.h"
#include "engine/prefix/policy.h"
#include "engine/prefix/return_time.h"
#include "engine/prefix/shortlist.h"

namespace pkv::prefix {

class LearnedPolicy final : public Policy {
 public:
  // capacity: blocks of the cache. weight_per_block: by how much a hit of a block saves more than
  // one of the block before it, in parts of what a hit of the first one saves. Throws bad_alloc.
  LearnedPolicy(uint64_t capacity, double weight_per_block, std::pmr::memory_resource& memory);
  void reserve(size_t nodes) override;
  void add(Node& node) noexcept override;
  void remove(Node& node) noexcept override;
  std::array<std::span<Node* const>, retentions> candidates() const override {
    return {candidates_[0].nodes, candidates_[1].nodes, candidates_[2].nodes};
  }
  Node* victim() noexcept override;
  void validate() const override;
  void inserted(std::span<const BlockHash> hashes, std::span<History> histories) noexcept override;
  void used(Node& end, uint32_t from, uint8_t hint, uint64_t now) noexcept override;
  void evicted(Node& node, uint32_t count) noexcept override;

 private:
  // The candidates of one retention; Node::place is the index in both lists.
  struct Candidates {
    explicit Candidates(std::pmr::memory_resource& memory) : nodes(&memory), facts(&memory) {}
    std::pmr::vector<Node*> nodes;
    std::pmr::vector<Facts> facts;
  };
  float worth(const Facts& facts) const noexcept;
  void offer(const Candidates& candidates, size_t place) noexcept;
  Node* lowest(const Candidates& candidates) const noexcept;
  size_t random_below(size_t n) noexcept;

  std::array<Candidates, retentions> candidates_;
  ReturnTimes times_;
  const float weight_per_block_;
  Ghosts ghosts_;
  Shortlist shortlist_;
  uint8_t shortlist_retention_ = 0;
  uint64_t now_ = 0;
  uint64_t random_ = 1;
  Node* next_ = nullptr;  // what the last victim leaves, which is likely as good a choice
};

}  // namespace pkv::prefix
