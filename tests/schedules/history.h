// Records the calls of the threads of an execution and their answers, and decides whether one order
// of all these calls explains the answers. This is linearizability with happens-before as the order
// that has to be kept, because a machine with weak memory has no other "before". The search is Wing
// and Gong's (1993), and remembers the states it has been in.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "clock.h"
#include "engine/memory/block_state.h"

namespace schedules {

using pkv::memory::Block;
using pkv::memory::BlockState;

enum class Call : uint8_t { alloc, retain, release, fill, look };
inline constexpr const char* call_names[] = {"alloc", "retain", "release", "fill", "look"};
inline constexpr uint32_t max_list = 4;

struct Operation {
  Call call{};
  int thread = 0;
  // The number of blocks to alloc, or of filled slots.
  uint32_t n = 0;
  Block block = 0;  // The block. For `look` only its id counts.
  pkv_status status{};
  Block out[max_list] = {};  // The answer of alloc.
  BlockState state{};        // The answer of look.
  Clock began;
  uint32_t ended = 0;  // The thread's time at the end of the call.
  size_t place = 0;    // The call's place in the order in which calls ended.
  // The turn of its thread. All operations of one call on a list of blocks belong to one turn.
  uint32_t turn = 0;

  bool before(const Operation& other) const {
    return thread == other.thread ? turn < other.turn : other.began.covers(thread, ended);
  }
  // A call that was refused has changed nothing.
  bool changes() const { return status == PKV_OK && call != Call::look; }
};

// A simple pool for a single thread.
struct Model {
  std::vector<uint64_t> states;
  bool operator==(const Model&) const = default;

  static bool is_free(const BlockState& state) {
    return state.references == 0 && state.generation != pkv::memory::retired_generation;
  }
  uint32_t free() const {
    uint32_t count = 0;
    for (uint64_t state : states) count += is_free(pkv::memory::unpack(state));
    return count;
  }

  // Makes the call. Returns false if the answer would be different. `doubtful` are blocks
  // that are free but need not be found. Sets *freed to whether the call freed a block.
  bool apply(const Operation& op, uint32_t doubtful, bool* freed) {
    *freed = false;
    if (op.call == Call::alloc) return alloc(op, doubtful);
    const uint32_t id = pkv::memory::block_id(op.block);
    if (id >= states.size()) return op.status == PKV_OUT_OF_RANGE;
    BlockState state = pkv::memory::unpack(states[id]);
    if (op.call == Call::look) return state == op.state;
    pkv_status status = PKV_OK;
    if (state.references == 0 || state.generation != pkv::memory::block_generation(op.block))
      status = PKV_NOT_HELD;
    else
      status = change(op, state);
    if (status != op.status) return false;
    if (status == PKV_OK) states[id] = pkv::memory::pack(state);
    *freed = status == PKV_OK && is_free(state);
    return true;
  }

 private:
  bool alloc(const Operation& op, uint32_t doubtful) {
    if (op.status != PKV_OK) return free() < op.n + doubtful;
    for (uint32_t i = 0; i < op.n; i++) {
      const uint32_t id = pkv::memory::block_id(op.out[i]);
      if (id >= states.size()) return false;
      const BlockState state = pkv::memory::unpack(states[id]);
      if (!is_free(state) || state.generation != pkv::memory::block_generation(op.out[i]))
        return false;
      states[id] = pkv::memory::pack({state.generation, 1, 0});
    }
    return true;
  }

  static pkv_status change(const Operation& op, BlockState& state) {
    switch (op.call) {
      case Call::retain:
        state.references++;
        break;
      case Call::release:
        if (--state.references == 0) state = {state.generation + 1, 0, 0};
        break;
      case Call::fill:
        if (state.references > 1) return PKV_NOT_HELD;
        state.filled = op.n;
        break;
      default:
        break;
    }
    return PKV_OK;
  }
};

// What may explain that an alloc was refused although blocks are free, besides a concurrent
// release.
struct Relaxations {
  // Another alloc was in progress.
  bool allocs = false;
  // Each refused call is explained by its own order.
  bool refusals_alone = false;
};

class Linearization {
 public:
  Linearization(const std::vector<Operation>& ops, const Model& end, Relaxations relaxed)
      : ops_(ops), end_(end), relaxed_(relaxed) {
    for (size_t i = 0; i < ops.size(); i++) {
      Set preceding = 0;
      for (size_t j = 0; j < ops.size(); j++)
        if (ops[j].before(ops[i])) preceding |= Set{1} << j;
      preceding_.push_back(preceding);
      (ops[i].changes() ? changes_ : refusals_) |= Set{1} << i;
    }
    freed_.resize(ops.size());
  }

  // Returns true if there is an order that leads from `begin` to the end.
  bool exists(const Model& begin) {
    if (!relaxed_.refusals_alone) return can_order(changes_ | refusals_, begin);
    bool good = can_order(changes_, begin);
    for (Set rest = refusals_; rest != 0; rest &= rest - 1)
      good = good && can_order(changes_ | (rest & ~(rest - 1)), begin);
    return good;
  }

 private:
  using Set = uint64_t;  // A set of operations.

  bool can_order(Set ops, const Model& begin) {
    ordered_ = ops;
    tried_.clear();
    std::fill(freed_.begin(), freed_.end(), false);
    return search(0, begin);
  }

  bool search(Set placed, const Model& state) {
    if (placed == ordered_) return state == end_;
    if (!tried_.insert(key(placed, state)).second) return false;
    for (size_t i = 0; i < ops_.size(); i++) {
      const bool is_next =
          (ordered_ & ~placed) >> i & 1 && (preceding_[i] & ordered_ & ~placed) == 0;
      if (!is_next) continue;
      Model next = state;
      bool freed = false;
      if (!next.apply(ops_[i], doubtful(i, placed), &freed)) continue;
      freed_[i] = freed;
      if (search(placed | Set{1} << i, next)) return true;
      freed_[i] = false;
    }
    return false;
  }

  // Returns the free blocks that an alloc need not find: a concurrent release has returned them
  // halfway, or a concurrent alloc may hold them for a while.
  uint32_t doubtful(size_t alloc, Set placed) const {
    uint32_t count = 0;
    for (size_t i = 0; i < ops_.size(); i++) {
      if (i == alloc || preceding_[alloc] >> i & 1 || preceding_[i] >> alloc & 1) continue;
      const bool is_done = placed >> i & 1 && ops_[i].changes();
      if (ops_[i].call == Call::release && is_done) count += freed_[i];
      if (ops_[i].call == Call::alloc && !is_done && relaxed_.allocs) count += ops_[i].n;
    }
    return count;
  }

  std::string key(Set placed, const Model& state) const {
    std::string key(reinterpret_cast<const char*>(&placed), sizeof placed);
    key.append(reinterpret_cast<const char*>(state.states.data()),
               state.states.size() * sizeof state.states[0]);
    for (bool freed : freed_) key += freed ? '1' : '0';
    return key;
  }

  const std::vector<Operation>& ops_;
  const Model& end_;
  const Relaxations relaxed_;
  std::vector<Set> preceding_;  // Operations that happen before each.
  Set changes_ = 0, refusals_ = 0, ordered_ = 0;
  std::vector<bool> freed_;
  std::unordered_set<std::string> tried_;
};

}  // namespace schedules
