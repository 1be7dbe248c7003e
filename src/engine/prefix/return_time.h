// The learned order evicts the block that will probably be used again last, as learned from similar
// blocks. It has no options, and its only clock is the number of blocks that sessions released.
//
//   kinds    blocks are of the same kind if they were used about equally often and about the same
//            share of the last text that used them was new; or if the engine gave the same hint of
//            when their text continues
//   returns  a sample of the blocks is watched until each is used again, cached or not. For each
//            kind and age this gives the probability that a block returns at that age: returns over
//            blocks that are still away (the estimator of Kaplan and Meier)
//   index    the expected hits of a block per time that it is held, for the best time to hold it
//            (the Gittins index): the lowest is evicted first
//   ghosts   a table remembers how often evicted blocks were used, so that a block that is cached
//            again gets the right kind
//
// Until there is enough data, kinds that were used more often are assumed to return more often, and
// blocks are assumed to return the less, the longer they are away (Lindy's law). Statistics by
// class and age, and a few random candidates in place of a queue, are as in LHD (Beckmann, Chen and
// Cidon, NSDI 2018).
#pragma once

#include <algorithm>
#include <array>

#include "engine/prefix/tree.h"

namespace pkv::prefix {

// Learns when blocks of each kind return.
class ReturnTimes {
 public:
  // Kinds are numbered by how often their blocks were used (in powers of two, up to max_often), and
  // within that by how much was new. The kinds of hints come last.
  static constexpr uint8_t max_often = 5, fresh_classes = 5;
  static constexpr uint8_t unhinted_kinds = (max_often + 1) * fresh_classes, kinds = 47;
  // capacity: blocks of the cache, the measure of all times. Throws bad_alloc.
  ReturnTimes(uint64_t capacity, std::pmr::memory_resource& memory);

  // Returns the expected hits of a block of a kind at an age, per time that it is held.
  float worth(uint8_t kind, uint64_t age) const { return worth_[kind][bucket(age)]; }
  // Blocks were used once more, and belong to this kind now.
  void used(std::span<const BlockHash> hashes, uint8_t kind, uint64_t now) noexcept;
  // Learns from time to time: call it after each use.
  void learn(uint64_t now) noexcept {
    if (now >= next_) relearn(now);
  }
  // Checks that each watch is one that watch() makes. Throws INTERNAL.
  void validate(uint64_t now) const;

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

  size_t set_of(uint64_t hash) const;
  static size_t bucket(uint64_t age);
  static double begin(size_t bucket);
  void watch(uint64_t hash, uint8_t kind, uint64_t now) noexcept;
  void ended(const Watched& watched, bool returned, uint64_t now) noexcept;
  void widen(uint64_t now) noexcept;
  void count_at_risk(uint64_t now) noexcept;
  void set_worth(size_t kind, const std::array<double, ages>& usual) noexcept;
  void relearn(uint64_t now) noexcept;
  double horizon() const;
  double assumed() const;  // as how many watches the assumptions count

  const double capacity_;
  std::pmr::vector<Watched> watched_;  // by hash, in sets
  uint64_t sampled_ = 0;               // the bits of a hash that are 0 where a block is watched
  double early_ = 0;                   // watches that made room for others before the horizon
  uint64_t next_ = 0;                  // when it learns again
  // Watches by the age at their end: those that a return ended, and all. Old ones fade.
  Table<double> returned_, ended_;
  Table<double> at_risk_;  // watches that lasted to an age
  Table<float> worth_;
};

}  // namespace pkv::prefix
