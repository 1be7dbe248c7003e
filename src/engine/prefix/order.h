// By what blocks are ordered for eviction. The blocks of the cache and those of its miniatures
// (miniatures.h) are judged by the same rules, and chosen in the same way.
#pragma once

#include <array>

#include "engine/prefix/return_time.h"

namespace pkv::prefix {

enum class Order : uint8_t {
  learned,    // the fewest hits to expect for the time that they are held (return_time.h)
  recency,    // not used for longest
  frequency,  // matched least often since they were stored, and not used for longest among these
};
constexpr size_t order_count = 3;

// What the orders look at.
struct Facts {
  uint64_t last_use = 0;
  uint32_t matches = 0;
  uint32_t depth = 0;  // blocks up to the end
  uint8_t kind = 0;
};

class Judge {
 public:
  // weight_per_block: by how much a block saves more than the one before it, in parts of what the
  // first one saves.
  Judge(const ReturnTimes& times, double weight_per_block)
      : times_(times), weight_per_block_(static_cast<float>(weight_per_block)) {}

  // What a hit of a block saves.
  float weight(uint32_t depth) const { return 1 + weight_per_block_ * static_cast<float>(depth); }
  // The lowest goes first, and of equals the one that was not used for longest.
  float worth(Order order, const Facts& facts, uint64_t now) const {
    switch (order) {
      case Order::recency:
        return 0;
      case Order::frequency:
        return static_cast<float>(facts.matches);
      case Order::learned:
        break;
    }
    return times_.worth(facts.kind, now - facts.last_use) * weight(facts.depth);
  }

 private:
  const ReturnTimes& times_;
  const float weight_per_block_;
};

// Items that are worth little. Each choice looks at some random items and at those that were worth
// least of the ones it has looked at before, which makes it about as good as a look at all. (Redis
// has such a pool.)
template <class Item>
class Shortlist {
 public:
  static constexpr size_t size = 16;

  bool empty() const { return count_ == 0; }
  void clear() { count_ = 0; }
  void remove(Item item) {
    for (size_t i = 0; i < count_; i++)
      if (entries_[i].item == item) {
        entries_[i] = entries_[--count_];
        return;
      }
  }
  // Judges all again, as time has passed.
  void judge(const Judge& judge, Order order, uint64_t now) {
    for (size_t i = 0; i < count_; i++)
      entries_[i].worth = judge.worth(order, entries_[i].facts, now);
  }
  void offer(Item item, const Facts& facts, float worth) {
    const Entry entry{item, facts, worth};
    size_t highest = 0;
    for (size_t i = 0; i < count_; i++) {
      if (entries_[i].item == item) {
        entries_[i] = entry;
        return;
      }
      if (before(entries_[highest], entries_[i])) highest = i;
    }
    if (count_ < size)
      entries_[count_++] = entry;
    else if (before(entry, entries_[highest]))
      entries_[highest] = entry;
  }
  Item lowest() const {
    size_t lowest = 0;
    for (size_t i = 1; i < count_; i++)
      if (before(entries_[i], entries_[lowest])) lowest = i;
    return entries_[lowest].item;
  }

 private:
  struct Entry {
    Item item;
    Facts facts;
    float worth;
  };
  static bool before(const Entry& a, const Entry& b) {
    return a.worth != b.worth ? a.worth < b.worth : a.facts.last_use < b.facts.last_use;
  }

  std::array<Entry, size> entries_;
  size_t count_ = 0;
};

// Knuth's linear congruential generator, whose upper bits are good.
class Dice {
 public:
  size_t below(size_t n) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<size_t>((state_ >> 32) * n >> 32);
  }

 private:
  uint64_t state_ = 1;
};

}  // namespace pkv::prefix
