// What each order of eviction would find, so that the one that pays can be chosen: for each of them
// a small cache of the same traffic that has hashes and no blocks.
//
//   sample   a miniature sees the blocks whose hash ends with so many zero bits, and has room for
//            as many of them as the cache has of all (Waldspurger, Saemundsson, Ahmad and Park, ATC
//            2017). A block's hash stands for all text up to it, so what is sampled of a tree of
//            texts is a tree again: a block whose parent is the last sampled one before it. Only
//            its leaves are evicted. The cache of a small pool is its own sample
//   verdict  of each two orders it is known how far their hits are apart and how much this
//            difference varies from request to request. An order takes over from another one that
//            it is ahead of by more than chance. Old requests fade, and the first ones do not count
//   memory   0.4 MB at most, whatever the capacity, since a miniature has at most `max_size` blocks
#pragma once

#include "engine/prefix/order.h"

namespace pkv::prefix {

class Miniatures {
 public:
  // capacity: blocks of the cache. Throws bad_alloc.
  Miniatures(uint64_t capacity, std::pmr::memory_resource& memory);

  bool samples(uint64_t hash) const { return (hash & mask_) == 0; }
  // A text is used: its sampled blocks are added, from the last to the first, and then played.
  void add(uint64_t hash, uint8_t kind, uint32_t depth) noexcept;
  void play(const Judge& judge, uint64_t now) noexcept;

  // The order that pays most.
  Order best() const { return best_; }

 private:
  using Place = uint32_t;
  static constexpr Place none = ~Place{0};
  static constexpr uint64_t max_size = 1024;  // blocks of one miniature

  // A block that at least one miniature has.
  struct Block {
    uint64_t hash;
    uint64_t last_use;
    uint64_t text;  // the number of the last text with it
    uint32_t depth;
    Place parent;  // the last sampled block before it, which every miniature has that has this one
    Place next;    // in its bucket, or of those that are not in use
    uint8_t kind;
    struct State {
      bool cached = false;
      uint16_t children = 0;
      uint32_t matches = 0;
      Place leaf = none;  // among the leaves
    };
    std::array<State, order_count> in;
  };
  struct Miniature {
    explicit Miniature(std::pmr::memory_resource& memory) : leaves(&memory) {}
    std::pmr::vector<Place> leaves;
    Shortlist<Place> shortlist;
    size_t size = 0;
    double hits = 0;
  };
  struct Sampled {
    uint64_t hash;
    uint32_t depth;
    uint8_t kind;
  };

  Facts facts_of(const Block& block, size_t order) const;
  Place& bucket(uint64_t hash) { return buckets_[(hash >> 32) * buckets_.size() >> 32]; }
  Place find_or_make(const Sampled& sampled, Place parent) noexcept;
  void drop(Place place) noexcept;
  void add_leaf(Place place, size_t order) noexcept;
  void remove_leaf(Place place, size_t order) noexcept;
  void make_room(size_t order, size_t wanted, const Judge& judge, uint64_t now) noexcept;
  void evict(Place place, size_t order) noexcept;
  void play_in(size_t order, const Judge& judge, uint64_t now) noexcept;
  void compare() noexcept;
  void decide(uint64_t now) noexcept;

  const uint64_t capacity_;
  uint64_t mask_ = 0;
  size_t size_;  // of each miniature
  std::array<Miniature, order_count> miniatures_;
  std::pmr::vector<Block> blocks_;
  std::pmr::vector<Place> buckets_;
  Place unused_ = none;
  std::pmr::vector<Sampled> text_;  // what was added, in blocks from the last to the first
  std::pmr::vector<Place> path_;    // the same from the first to the last
  bool too_long_ = false;
  uint64_t texts_ = 0;
  std::array<double, order_count> hits_;  // of the text that is played
  // Sums of the squares of how far the hits of two orders were apart.
  std::array<std::array<double, order_count>, order_count> spread_{};
  bool warm_ = false;  // the learned order has had time to learn
  uint64_t next_ = 0;  // when it decides again
  Order best_ = Order::learned;
  Dice dice_;
};

}  // namespace pkv::prefix
