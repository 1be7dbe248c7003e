// The memory of one execution. Each atomic location keeps its stores in modification order. A load
// may return any store that neither happens-before nor coherence has superseded for its thread.
// README.md says what this model leaves out.
#pragma once

#include <atomic>
#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

#include "clock.h"
#include "scheduler.h"

namespace schedules {

inline bool acquires(std::memory_order order) {
  return order != std::memory_order_relaxed && order != std::memory_order_release;
}
inline bool releases(std::memory_order order) {
  return order == std::memory_order_release || order == std::memory_order_acq_rel ||
         order == std::memory_order_seq_cst;
}

class Memory {
 public:
  // Bounds that keep searches finite: how many loads in a row of one location may return outdated
  // stores to a thread (real machines show stores in finite time), and how many swaps of a thread
  // may fail spuriously or on an outdated store.
  static constexpr uint8_t max_outdated = 2;
  uint32_t max_weak_failures = 1;

  // Begins with an empty memory, which only thread 0 uses.
  void begin() {
    used_ = 0;
    touched_.clear();
    for (Clock& clock : clocks_) clock = Clock{};
  }
  // Everything so far happens before everything that the threads do.
  void fork(int threads) {
    for (int thread = 1; thread <= threads; thread++) {
      clocks_[thread] = clocks_[0];
      weak_failures_[thread] = 0;
    }
  }
  // Everything that the threads did happens before what follows.
  void join(int threads) {
    for (int thread = 1; thread <= threads; thread++) clocks_[0].join(clocks_[thread]);
  }

  Clock& clock() { return clocks_[scheduler.current()]; }

  uint32_t add(uint64_t value) {
    if (used_ == locations_.size()) locations_.emplace_back();
    locations_[used_].begin(value);
    return used_++;
  }
  uint32_t locations() const { return used_; }
  // The locations that thread 0 used.
  std::vector<uint32_t>& touched() { return touched_; }
  void (*watch_loads)(uint32_t location) = nullptr;

  void name(uint32_t location, const std::string& name) { locations_[location].name = name; }
  const std::string& name(uint32_t location) const { return locations_[location].name; }

  // Visits all values that a location had, in modification order.
  template <class Visit>
  void values(uint32_t location, Visit visit) const {
    for (const Store& store : locations_[location].stores) visit(store.value);
  }

  uint64_t load(uint32_t location, std::memory_order order, const std::source_location& where) {
    arrive(location, false);
    if (watch_loads != nullptr && scheduler.running()) watch_loads(location);
    Location& at = locations_[location];
    const uint32_t newest = static_cast<uint32_t>(at.stores.size()) - 1;
    uint32_t index = newest;
    if (scheduler.running()) index -= scheduler.choose(newest - oldest_visible(at, order) + 1);
    read(at, index, order);
    tell(location, "load", order, at.stores[index].value, at.stores[index].value, newest - index,
         where);
    return depart(location, false, at.stores[index].value);
  }

  void store(uint32_t location, uint64_t value, std::memory_order order,
             const std::source_location& where) {
    if (!scheduler.running()) {
      locations_[location].begin(value);
      return;
    }
    arrive(location, true);
    Location& at = locations_[location];
    tell(location, "store", order, at.stores.back().value, value, 0, where);
    append(at, value, order, Clock{});
    depart(location, true, 0);
  }

  // A read-modify-write reads the last store and follows it directly.
  template <class Change>
  uint64_t change(uint32_t location, const char* what, std::memory_order order,
                  const std::source_location& where, Change change) {
    arrive(location, true);
    Location& at = locations_[location];
    return depart(location, true,
                  swap(location, at, what, order, where, change(at.stores.back().value)));
  }

  // The first outcome is that of a machine without weak memory. Then there is a failure for no
  // reason, and then failures on outdated stores.
  bool compare_exchange(uint32_t location, uint64_t& expected, uint64_t desired, bool weak,
                        std::memory_order success, std::memory_order failure,
                        const std::source_location& where) {
    arrive(location, true);
    Location& at = locations_[location];
    const uint32_t newest = static_cast<uint32_t>(at.stores.size()) - 1;
    const bool matches = at.stores.back().value == expected;
    uint32_t outcomes[max_outcomes] = {newest}, count = 1;
    if (scheduler.running() && weak_failures_[scheduler.current()] < max_weak_failures) {
      if (matches && weak) outcomes[count++] = newest;
      for (uint32_t index = newest; index-- > oldest_visible(at, failure) && count < max_outcomes;)
        if (at.stores[index].value != expected) outcomes[count++] = index;
    }
    const uint32_t chosen = scheduler.running() ? scheduler.choose(count) : 0;
    if (chosen > 0) weak_failures_[scheduler.current()]++;
    if (matches && chosen == 0) {
      swap(location, at, "swap", success, where, desired);
      return depart(location, true, true);
    }
    const uint32_t index = outcomes[chosen];
    read(at, index, failure);
    expected = at.stores[index].value;
    tell(location, matches && index == newest ? "swap fails spuriously" : "swap fails", failure,
         expected, expected, newest - index, where);
    return depart(location, false, false);
  }

 private:
  struct Store {
    uint64_t value;
    Clock released;  // The clock that an acquiring load of it learns.
  };
  // At this time of a thread it knew the store with this index. A thread that knows that time
  // cannot read an older store.
  struct Seen {
    uint32_t time, index;
  };
  struct Location {
    std::vector<Store> stores;
    std::vector<Seen> seen[max_threads];
    uint8_t outdated[max_threads];
    uint32_t last_seq_cst;
    std::string name;

    void begin(uint64_t value) {
      stores.clear();
      stores.push_back({value, Clock{}});
      for (auto& list : seen) list.clear();
      std::fill(std::begin(outdated), std::end(outdated), uint8_t{0});
      last_seq_cst = 0;
    }
  };
  static constexpr uint32_t max_outcomes = 8;

  void arrive(uint32_t location, bool writes) {
    if (scheduler.running())
      scheduler.step({location, writes});
    else
      touched_.push_back(location);
    clock().times[scheduler.current()]++;
  }
  template <class T>
  T depart(uint32_t location, bool wrote, T result) {
    if (scheduler.running()) scheduler.stepped({location, wrote});
    return result;
  }

  uint32_t oldest_visible(const Location& at, std::memory_order order) {
    const int current = scheduler.current();
    if (at.outdated[current] == max_outdated) return static_cast<uint32_t>(at.stores.size()) - 1;
    uint32_t oldest = order == std::memory_order_seq_cst ? at.last_seq_cst : 0;
    for (int thread = 1; thread < max_threads; thread++)
      for (size_t i = at.seen[thread].size(); i-- > 0;) {
        if (!clock().covers(thread, at.seen[thread][i].time)) continue;
        oldest = std::max(oldest, at.seen[thread][i].index);
        break;
      }
    return oldest;
  }

  void see(Location& at, uint32_t index) {
    const int thread = scheduler.current();
    auto& seen = at.seen[thread];
    if (seen.empty() || seen.back().index < index) seen.push_back({clock().times[thread], index});
    at.outdated[thread] =
        index + 1 < at.stores.size() ? static_cast<uint8_t>(at.outdated[thread] + 1) : uint8_t{0};
  }

  void read(Location& at, uint32_t index, std::memory_order order) {
    see(at, index);
    if (acquires(order)) clock().join(at.stores[index].released);
  }

  void append(Location& at, uint64_t value, std::memory_order order, Clock released) {
    if (releases(order)) released.join(clock());
    at.stores.push_back({value, released});
    const uint32_t index = static_cast<uint32_t>(at.stores.size()) - 1;
    if (order == std::memory_order_seq_cst) at.last_seq_cst = index;
    see(at, index);
  }

  uint64_t swap(uint32_t location, Location& at, const char* what, std::memory_order order,
                const std::source_location& where, uint64_t value) {
    const uint64_t before = at.stores.back().value;
    if (!scheduler.running()) {
      at.stores.back().value = value;
      return before;
    }
    tell(location, what, order, before, value, 0, where);
    if (acquires(order)) clock().join(at.stores.back().released);
    // A swap continues the release sequence.
    append(at, value, order, at.stores.back().released);
    return before;
  }

  void tell(uint32_t location, const char* what, std::memory_order order, uint64_t before,
            uint64_t after, uint32_t age, const std::source_location& where);

  std::vector<Location> locations_;
  uint32_t used_ = 0;
  std::vector<uint32_t> touched_;
  Clock clocks_[max_threads];
  uint32_t weak_failures_[max_threads] = {};
};

inline Memory memory;

// Describes a value as readers of its location see it. The code that knows what locations hold sets
// it.
inline std::string (*describe_value)(const std::string& name, uint64_t value) = nullptr;

inline void Memory::tell(uint32_t location, const char* what, std::memory_order order,
                         uint64_t before, uint64_t after, uint32_t age,
                         const std::source_location& where) {
  if (!scheduler.telling() || !scheduler.running()) return;
  static constexpr const char* orders[] = {"relaxed", "consume", "acquire",
                                           "release", "acq_rel", "seq_cst"};
  const std::string& name = locations_[location].name;
  const auto text = [&](uint64_t value) {
    return describe_value != nullptr ? describe_value(name, value) : std::to_string(value);
  };
  const std::string file = where.file_name();
  std::string line = "  " + file.substr(file.rfind('/') + 1) + ":" + std::to_string(where.line()) +
                     "  " + name + " " + what + " (" + orders[static_cast<int>(order)] + ")  " +
                     text(before);
  if (before != after) line += " -> " + text(after);
  if (age > 0) line += "  [outdated, " + std::to_string(age) + " newer]";
  scheduler.note(line);
}

// Plain data. Accesses that conflict must be ordered by happens-before.
class Cell {
 public:
  void write(const char* what) {
    const int current = scheduler.current();
    check(written_by_, written_, what, "written");
    for (int thread = 0; thread < max_threads; thread++) check(thread, read_[thread], what, "read");
    written_by_ = current;
    written_ = ++memory.clock().times[current];
    std::fill(std::begin(read_), std::end(read_), 0u);
  }
  void read(const char* what) {
    check(written_by_, written_, what, "written");
    const int current = scheduler.current();
    read_[current] = ++memory.clock().times[current];
  }

 private:
  void check(int thread, uint32_t time, const char* what, const char* how) const {
    if (!memory.clock().covers(thread, time))
      scheduler.found("data race: thread %d %s what thread %d has %s, and nothing orders the two",
                      scheduler.current(), what, thread, how);
  }
  int written_by_ = 0;
  uint32_t written_ = 0, read_[max_threads] = {};
};

// The policy for BasicPool (engine/memory/atomics.h).
struct ScheduledAtomics {
  static uint32_t thread_number() noexcept { return static_cast<uint32_t>(scheduler.current()); }

  // A value that is not atomic.
  template <class T>
  class plain {
   public:
    plain(T value) : value_(value) {}
    plain& operator=(T value) {
      if (scheduler.running()) cell_.write("writes plain data that");
      value_ = value;
      return *this;
    }
    plain& operator=(const plain& other) { return *this = T{other}; }
    plain(const plain& other) : value_(other.value_) {}
    operator T() const {
      if (scheduler.running()) cell_.read("reads plain data that");
      return value_;
    }

   private:
    T value_;
    mutable Cell cell_;
  };

  template <class T>
  class atomic {
    using Where = std::source_location;

   public:
    atomic() : atomic(T{}) {}
    explicit atomic(T value) : location_(memory.add(value)) {}
    atomic(const atomic&) = delete;
    atomic& operator=(const atomic&) = delete;

    T load(std::memory_order order, Where where = Where::current()) const {
      return static_cast<T>(memory.load(location_, order, where));
    }
    void store(T value, std::memory_order order, Where where = Where::current()) {
      memory.store(location_, value, order, where);
    }
    T exchange(T value, std::memory_order order, Where where = Where::current()) {
      return change("exchange", order, where, [value](uint64_t) { return value; });
    }
    T fetch_add(T other, std::memory_order order, Where where = Where::current()) {
      return change("fetch_add", order, where, [other](uint64_t now) { return now + other; });
    }
    T fetch_sub(T other, std::memory_order order, Where where = Where::current()) {
      return change("fetch_sub", order, where, [other](uint64_t now) { return now - other; });
    }
    T fetch_and(T other, std::memory_order order, Where where = Where::current()) {
      return change("fetch_and", order, where, [other](uint64_t now) { return now & other; });
    }
    T fetch_or(T other, std::memory_order order, Where where = Where::current()) {
      return change("fetch_or", order, where, [other](uint64_t now) { return now | other; });
    }
    bool compare_exchange_weak(T& expected, T desired, std::memory_order success,
                               std::memory_order failure, Where where = Where::current()) {
      return exchange_if(expected, desired, true, success, failure, where);
    }
    bool compare_exchange_strong(T& expected, T desired, std::memory_order success,
                                 std::memory_order failure, Where where = Where::current()) {
      return exchange_if(expected, desired, false, success, failure, where);
    }

   private:
    template <class Change>
    T change(const char* what, std::memory_order order, const Where& where, Change change) {
      return static_cast<T>(
          memory.change(location_, what, order, where,
                        [&](uint64_t now) -> uint64_t { return static_cast<T>(change(now)); }));
    }
    bool exchange_if(T& expected, T desired, bool weak, std::memory_order success,
                     std::memory_order failure, const Where& where) {
      uint64_t seen = expected;
      const bool swapped =
          memory.compare_exchange(location_, seen, desired, weak, success, failure, where);
      expected = static_cast<T>(seen);
      return swapped;
    }
    uint32_t location_;
  };
};

}  // namespace schedules
