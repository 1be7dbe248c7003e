// The least valuable candidates for eviction seen so far. Each choice compares some random
// candidates with the shortlist of earlier choices, which is about as good as comparing all
// candidates. (Redis has such a pool.)
#pragma once

#include <array>
#include <span>

#include "engine/prefix/tree.h"

namespace pkv::prefix {

// What the worth of a candidate follows from. It lies apart from the node, so that a look at many
// candidates stays in the processor's caches.
struct Facts {
  uint64_t last_use = 0;
  uint32_t depth = 0;  // blocks up to the end
  uint8_t kind = 0;    // see return_time.h
  bool operator==(const Facts&) const = default;
};

class Shortlist {
 public:
  static constexpr size_t size = 16;
  struct Candidate {
    Node* node;
    Facts facts;
    float worth;
    // The lowest worth goes first, and among equals the least recently used.
    bool before(const Candidate& other) const {
      return worth != other.worth ? worth < other.worth : facts.last_use < other.facts.last_use;
    }
  };

  std::span<const Candidate> entries() const { return std::span(entries_).first(count_); }
  void clear() { count_ = 0; }
  void remove(const Node& node) {
    for (size_t i = 0; i < count_; i++)
      if (entries_[i].node == &node) {
        entries_[i] = entries_[--count_];
        return;
      }
  }
  // Sets the worth of each entry to worth(facts), since time has passed.
  template <class Worth>
  void judge(const Worth& worth) {
    for (Candidate& entry : std::span(entries_).first(count_)) entry.worth = worth(entry.facts);
  }
  // Adds an entry, or replaces the one of the same node. A full list loses the last to go.
  void offer(const Candidate& entry) {
    size_t last = 0;
    for (size_t i = 0; i < count_; i++) {
      if (entries_[i].node == entry.node) {
        entries_[i] = entry;
        return;
      }
      if (entries_[last].before(entries_[i])) last = i;
    }
    if (count_ < size)
      entries_[count_++] = entry;
    else if (entry.before(entries_[last]))
      entries_[last] = entry;
  }
  // Returns the candidate that goes first; the list must not be empty.
  Node* first() const {
    size_t first = 0;
    for (size_t i = 1; i < count_; i++)
      if (entries_[i].before(entries_[first])) first = i;
    return entries_[first].node;
  }

 private:
  std::array<Candidate, size> entries_;
  size_t count_ = 0;
};

}  // namespace pkv::prefix
