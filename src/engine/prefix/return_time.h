// The default policy evicts the block that will return last, judging by what is known of blocks
// like it. It has nothing to configure, and its only clock is the number of blocks that sessions
// gave up.
//
//   kinds    blocks are told apart by how often they were used, and by how much was new in the last
//            text that used them
//   returns  a sample of the blocks is watched until each is used again, cached or not. From that
//            follows, for each kind and age, the probability that a block returns at that age: hits
//            over those still waiting (the estimator of Kaplan and Meier)
//   index    the hits to expect of a block per time that it is held, for the best time to hold it
//            (the index of Gittins): lowest goes first
//   ghosts   a table remembers how often evicted blocks were used, so that one that comes back is
//            of the right kind
//
// Before much was seen, a kind returns as all kinds do together, and these the less the longer they
// were away (Lindy's law). Classes and ages as the unit of statistics, and a few random candidates
// in the place of a queue, are as in LHD (Beckmann, Chen and Cidon, NSDI 2018).
#pragma once

#include <algorithm>
#include <array>

#include "engine/prefix/policy.h"

namespace pkv::prefix {

// Learns when blocks of each kind return.
class ReturnTimes {
 public:
  static constexpr uint8_t kinds = 30;
  // capacity: blocks of the cache, the measure of all times. Throws bad_alloc.
  ReturnTimes(uint64_t capacity, std::pmr::memory_resource& memory);

  // The hits to expect of a block of a kind at an age, per time that it is held.
  float worth(uint8_t kind, uint64_t age) const { return worth_[kind][bucket(age)]; }
  // Blocks were used once more, and belong to this kind now.
  void used(std::span<const uint64_t> hashes, uint8_t kind, uint64_t now) noexcept;
  // Learns from time to time: call it after each use.
  void learn(uint64_t now) noexcept {
    if (now >= next_) relearn(now);
  }

 private:
  static constexpr size_t ages = 72;  // buckets, two an octave
  template <class Number>
  using Table = std::pmr::vector<std::array<Number, ages>>;  // by kind
  struct Watched {
    uint64_t hash = 0;
    uint64_t since : 56 = 0;
    uint64_t kind : 8 = nothing;
  };
  static constexpr uint8_t nothing = 255;

  static size_t bucket(uint64_t age);
  static double begin(size_t bucket);
  void watch(uint64_t hash, uint8_t kind, uint64_t now) noexcept;
  void ended(const Watched& watched, bool returned, uint64_t now) noexcept;
  void widen(uint64_t now) noexcept;
  void count_at_risk(uint64_t now) noexcept;
  void set_worth(size_t kind, const std::array<double, ages>& usual) noexcept;
  void relearn(uint64_t now) noexcept;
  double horizon() const;

  const double capacity_;
  std::pmr::vector<Watched> watched_;  // by hash, in sets
  uint64_t sampled_ = 0;               // the bits of a hash that are 0 where a block is watched
  double early_ = 0;                   // watches given up for others before the horizon
  uint64_t next_ = 0;                  // when it learns again
  // Watches by the age at their end: those that a return ended, and all. Old ones fade.
  Table<double> returned_, ended_;
  Table<double> at_risk_;  // watches that lasted to an age
  Table<float> worth_;
};

// Remembers how evicted blocks were used, in sets of which the oldest is forgotten.
class Ghosts {
 public:
  Ghosts(uint64_t capacity, std::pmr::memory_resource& memory)
      : sets_(std::min(capacity * per_block / ways, max_sets)), table_(&memory) {}
  void remember(uint64_t hash, History history) noexcept;
  // Returns what is known of a block that comes back, and forgets it.
  History recall(uint64_t hash) noexcept;
  void prefetch(uint64_t hash) const noexcept {
    if (!table_.empty()) __builtin_prefetch(&table_[set(hash)]);
  }

 private:
  using Ghost = uint32_t;  // tag:22 | turn:5 | uses:5, the newest first; 0: none
  static constexpr size_t ways = 8, per_block = 16;
  size_t set(uint64_t hash) const { return static_cast<size_t>((hash >> 32) * sets_ >> 32); }

  static constexpr uint64_t max_sets = uint64_t{1} << 32;
  const uint64_t sets_;
  // It is allocated when the first block is evicted, since a cache that is never full needs none.
  std::pmr::vector<std::array<Ghost, ways>> table_;
};

class ReturnTimePolicy final : public Policy {
 public:
  ReturnTimePolicy(uint64_t capacity, std::pmr::memory_resource& memory);
  void reserve(size_t nodes) override;
  void add(Node& node) noexcept override;
  void remove(Node& node) noexcept override;
  std::array<std::span<Node* const>, retentions> candidates() const override {
    return {candidates_[0], candidates_[1], candidates_[2]};
  }
  Node* victim() noexcept override;
  void inserted(std::span<const uint64_t> hashes, std::span<History> histories) noexcept override;
  void used(Node& end, uint32_t from, uint64_t now) noexcept override;
  void evicted(Node& node, uint32_t count) noexcept override;

 private:
  // The candidates by retention; Node::place is the index in its list.
  std::array<std::pmr::vector<Node*>, retentions> candidates_;
  ReturnTimes times_;
  Ghosts ghosts_;
  uint64_t now_ = 0;
  uint64_t random_ = 1;
  Node* next_ = nullptr;  // what the last victim left, which is likely as good a choice
};

}  // namespace pkv::prefix
