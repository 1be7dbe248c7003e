// Explores every execution of a case, up to the order of accesses that do not depend on each other.
// The search is depth first over recorded choices, with dynamic partial-order reduction by source
// sets and sleep sets (Abdulla, Aronis, Jonsson, Sagonas, 2014). Two accesses depend on each other
// if they are of one location and one of them writes. An access is named by its depth, from 1.
#pragma once

#include <vector>

#include "scheduler.h"

namespace schedules {

class Explorer : public Strategy {
 public:
  // Without reduction it explores every interleaving there is.
  explicit Explorer(bool reduced = true) : reduced_(reduced) {}

  // Begins an execution.
  void begin() {
    depth_ = 0;
    lasts_.clear();
    for (Clock& clock : past_) clock = Clock{};
  }

  // Ends an execution and goes to the next one. Returns false if there is none.
  bool advance() {
    nodes_.resize(depth_);
    while (!nodes_.empty()) {
      Node& node = nodes_.back();
      if (node.choice + 1 < node.choices) {
        node.choice++;
        return true;
      }
      node.done |= 1u << node.thread;
      const unsigned rest = node.backtrack & ~node.done & ~node.asleep;
      if (rest != 0) {
        begin_with(node, __builtin_ctz(rest));
        return true;
      }
      nodes_.pop_back();
    }
    return false;
  }

  int next(unsigned runnable, const Access* pending, int current) override {
    if (depth_ < nodes_.size()) return nodes_[depth_++].thread;
    Node node;
    node.asleep = depth_ == 0 || !reduced_ ? 0 : still_asleep();
    std::copy(pending, pending + max_threads, node.pending);
    const unsigned awake = runnable & ~node.asleep;
    if (awake == 0) return -1;
    // To continue with the same thread saves a switch.
    begin_with(node, awake >> current & 1 ? current : __builtin_ctz(awake));
    node.backtrack = reduced_ ? 1u << node.thread : runnable;
    nodes_.push_back(node);
    depth_++;
    return node.thread;
  }

  uint32_t choose(uint32_t n) override {
    Node& node = nodes_[depth_ - 1];
    node.choices = n;
    return node.choice;
  }

  void done(int thread, const Access& access) override {
    const uint32_t time = static_cast<uint32_t>(depth_);
    Node& node = nodes_[depth_ - 1];
    node.done_access = access;
    if (access.location >= lasts_.size()) lasts_.resize(access.location + 1);
    Last& last = lasts_[access.location];
    Clock& past = past_[thread];
    const Clock before = past;
    past.join(last.write_past);
    if (access.writes) past.join(last.read_past);
    past.times[thread] = time;
    node.past = past;
    // All but the last access of a replayed prefix have been looked at already.
    if (reduced_ && depth_ == nodes_.size()) {
      reverse_unless_ordered(last.written, thread, before);
      for (int reader = 1; access.writes && reader < max_threads; reader++)
        reverse_unless_ordered(last.read[reader], thread, before);
    }
    if (access.writes) {
      last = Last{time, {}, past, {}};
    } else {
      last.read[thread] = time;
      last.read_past.join(past);
    }
  }

 private:
  // A state on the way, and what is tried from there.
  struct Node {
    int thread = 0;
    uint32_t choice = 0, choices = 1;
    unsigned backtrack = 0, done = 0, asleep = 0;  // Sets of threads.
    Access pending[max_threads];
    Access done_access;
    // The clock of the access: which others come before it.
    Clock past;
  };
  // The last write of a location, the reads since then, and what came before them.
  struct Last {
    uint32_t written = 0, read[max_threads] = {};
    Clock write_past, read_past;
  };

  static void begin_with(Node& node, int thread) {
    node.thread = thread;
    node.choice = 0;
    node.choices = 1;
  }

  // Returns the threads that were explored from the state before. They need not be explored again
  // until an access that they depend on has happened.
  unsigned still_asleep() const {
    const Node& before = nodes_[depth_ - 1];
    unsigned asleep = (before.asleep | before.done) & ~(1u << before.thread);
    for (int thread = 1; thread < max_threads; thread++) {
      const Access& access = before.pending[thread];
      if (access.location == before.done_access.location &&
          (access.writes || before.done_access.writes))
        asleep &= ~(1u << thread);
    }
    return asleep;
  }

  bool ordered(uint32_t first, uint32_t second) const {
    return nodes_[second - 1].past.covers(nodes_[first - 1].thread, first);
  }

  // The access just made races with an earlier one if nothing in between orders them. Then the
  // executions with the reverse order are tried, too: one of the threads that can begin them must
  // be explored from the state before the earlier access.
  void reverse_unless_ordered(uint32_t earlier, int thread, const Clock& before) {
    if (earlier == 0 || nodes_[earlier - 1].thread == thread ||
        before.covers(nodes_[earlier - 1].thread, earlier))
      return;
    const uint32_t now = static_cast<uint32_t>(depth_);
    std::vector<uint32_t>& leading = leading_;
    leading.clear();
    unsigned beginners = 0;
    for (uint32_t later = earlier + 1; later <= now; later++) {
      if (later != now && ordered(earlier, later)) continue;
      bool begins = true;
      for (uint32_t other : leading) begins = begins && !ordered(other, later);
      if (begins) beginners |= 1u << nodes_[later - 1].thread;
      leading.push_back(later);
    }
    unsigned& backtrack = nodes_[earlier - 1].backtrack;
    if ((backtrack & beginners) == 0) backtrack |= 1u << __builtin_ctz(beginners);
  }

  const bool reduced_;
  std::vector<Node> nodes_;
  size_t depth_ = 0;
  std::vector<Last> lasts_;
  std::vector<uint32_t> leading_;
  Clock past_[max_threads];
};

// Follows a random schedule (Burckhardt, Kothari, Musuvathi, Nagarakatte, 2010). The thread of the
// highest priority runs, and at a few random accesses the running one falls behind all others. One
// thread may be stopped from some access on until all others have ended.
class RandomSchedule : public Strategy {
 public:
  explicit RandomSchedule(uint64_t seed) : random_(seed * 0x9E3779B97F4A7C15u + 1) {
    for (int& priority : priorities_) priority = static_cast<int>(below(1000)) + 1000;
    for (uint32_t& change : changes_) change = below(80);
    stopped_ = static_cast<int>(below(2 * max_threads));
    stopped_after_ = below(30);
    odd_outcomes_ = below(3);
  }

  int next(unsigned runnable, const Access*, int current) override {
    accesses_++;
    for (uint32_t change : changes_)
      if (change == accesses_) priorities_[current] = 1000 - static_cast<int>(accesses_);
    int best = -1;
    for (int thread = 1; thread < max_threads; thread++) {
      if ((runnable >> thread & 1) == 0) continue;
      const bool stopped = thread == stopped_ && accesses_of_[thread] >= stopped_after_ &&
                           (runnable & ~(1u << thread)) != 0;
      if (!stopped && (best < 0 || priorities_[thread] > priorities_[best])) best = thread;
    }
    accesses_of_[best]++;
    return best;
  }
  // Some schedules have no odd outcomes, some have a few, and some have many.
  uint32_t choose(uint32_t n) override {
    return odd_outcomes_ == 0 || below(odd_outcomes_ == 1 ? 8 : 2) != 0 ? 0 : below(n);
  }
  void done(int, const Access&) override {}

  uint32_t below(uint32_t n) {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return static_cast<uint32_t>((random_ >> 16) % n);
  }

 private:
  uint64_t random_;
  int priorities_[max_threads];
  uint32_t changes_[3];
  int stopped_;
  uint32_t stopped_after_, odd_outcomes_, accesses_ = 0, accesses_of_[max_threads] = {};
};

}  // namespace schedules
