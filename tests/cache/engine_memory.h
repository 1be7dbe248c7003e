// What an engine keeps by itself: in each layer group, a number for each slot, its mark, which
// stands for the keys and values of a token. It is the naive device behind block_io, too: its hooks
// check all that common.h promises to them, and can stand still or fail.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <iterator>
#include <mutex>
#include <vector>

#include "../support/cache.h"

namespace cache_test {

class EngineMemory {
 public:
  static constexpr size_t block_size = 16;
  // A block ends with two bytes that have no meaning, so that its size is no round number.
  static constexpr uint64_t block_bytes = block_size * sizeof(uint64_t) + 2;

  EngineMemory(size_t groups, uint64_t blocks)
      : slabs_(groups, std::vector<uint64_t>(blocks * block_size)),
        flights_(groups, std::vector<Flight>(blocks)) {}

  uint64_t at(uint32_t group, int64_t slot) const {
    return slabs_[group][static_cast<size_t>(slot)];
  }

  // Makes the copies of a step and writes the marks of its new tokens. An aborted step needs no
  // undo: what it wrote lies in its own blocks, or beyond what anybody holds.
  template <class Marks>
  void write(pkv_batch batch, uint32_t group, size_t sessions, const Marks& marks) {
    std::vector<uint64_t>& slab = slabs_[group];
    std::vector<uint32_t> from(sessions), to(sessions);
    size_t copies = 0;
    CHECK(pkv_batch_get_block_copies(batch, group, sessions, from.data(), to.data(), &copies));
    for (size_t i = 0; i < copies; i++) {
      check_at_rest(group, to[i]);
      std::copy_n(&slab[from[i] * block_size], block_size, &slab[to[i] * block_size]);
    }
    const std::vector<int64_t> slots = slot_mapping(batch, group);
    for (size_t i = 0; i < slots.size(); i++) {
      if (i == 0 || slots[i] % int64_t{block_size} == 0)
        check_at_rest(group, static_cast<uint32_t>(slots[i] / int64_t{block_size}));
      slab[static_cast<size_t>(slots[i])] = marks[i];
    }
  }

  // Writes the states that a step keeps: mark(s, n) is that of session s after n of its new tokens.
  // Checks those from before the step, with n = 0; 0 of a session without a token.
  template <class Mark>
  void write_states(pkv_batch batch, uint32_t group, size_t sessions, const Mark& mark) {
    std::vector<uint32_t> before(sessions), indptr(sessions + 1), tokens(512), after(512);
    size_t count = 0;
    CHECK(pkv_batch_get_state_blocks(batch, group, before.data(), indptr.data(), after.size(),
                                     tokens.data(), after.data(), &count));
    for (size_t s = 0; s < sessions; s++) {
      const uint64_t expected = mark(s, 0);
      EXPECT_EQ(expected == 0, before[s] == PKV_NO_BLOCK_ID);
      if (expected != 0 && complete) {
        EXPECT_EQ(expected, state(group, before[s])) << "the state before a step";
      }
      for (size_t i = indptr[s]; i < indptr[s + 1]; i++) {
        check_at_rest(group, after[i]);
        slabs_[group][after[i] * block_size] = mark(s, tokens[i] + 1);
      }
    }
  }
  uint64_t state(uint32_t group, uint32_t block) const { return slabs_[group][block * block_size]; }

  // The hooks, for config.block_io of a cache whose groups have block_bytes. They are valid as long
  // as the object.
  const pkv_block_io* hooks() {
    hooks_ = made<pkv_block_io>();
    hooks_.user = this;
    hooks_.read = [](void* user, uint32_t group, size_t n, const uint32_t* ids,
                     const uint32_t* tokens, void* to) {
      return static_cast<EngineMemory*>(user)->read(group, n, ids, tokens, to);
    };
    hooks_.write = [](void* user, uint32_t group, size_t n, const uint32_t* ids, const void* from) {
      return static_cast<EngineMemory*>(user)->write(group, n, ids, from);
    };
    return &hooks_;
  }

  // While they are held, calls of these hooks wait, with all their blocks in flight.
  void hold_reads() { set_held(true, false); }
  void hold_writes() { set_held(false, true); }
  // The k-th call from now on waits, of either hook.
  void hold_call(uint64_t k) { set_held(false, false, reads + writes + k); }
  void go_on() { set_held(false, false); }
  // Returns when one of them waits.
  void await_held_call() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ > 0; });
  }
  // Returns whether one waits now.
  bool is_held() {
    const std::lock_guard lock(mutex_);
    return waiting_ > 0;
  }

  bool any_bytes = false;  // write() gets bytes that no engine read
  // false: blocks were loaded that nobody gave to the engine
  std::atomic<bool> complete{true};

  // What hooks return instead of working; 0: they work. From the fails_at-th call on, counting
  // both.
  std::atomic<int> result{0};
  std::atomic<uint64_t> fails_at{0};
  // Lets all calls fail after some more that work, until work() is called.
  void fail_after(uint64_t calls) {
    fails_at = reads + writes + calls + 1;
    result = -EIO;
  }
  void work() { result = 0, failures = 0; }
  bool failed() const { return failures > 0; }
  // While one lives, no call on its thread fails: those of a save or a load.
  struct Reliable {
    Reliable() { reliable_++; }
    ~Reliable() { reliable_--; }
    Reliable(const Reliable&) = delete;
    Reliable& operator=(const Reliable&) = delete;
  };
  // How often they were called, and with how many blocks.
  std::atomic<uint64_t> reads{0}, writes{0}, blocks_read{0}, blocks_written{0};
  std::atomic<uint64_t> failures{0};

 private:
  static constexpr unsigned char end[2] = {0x5A, 0xA5};
  struct Flight {
    int readers = 0;
    bool written = false;
  };

  void set_held(bool reading, bool writing, uint64_t call = 0) {
    const std::lock_guard lock(mutex_);
    reads_held_ = reading, writes_held_ = writing, held_call_ = call;
    changed_.notify_all();
  }

  void check_at_rest(uint32_t group, uint32_t id) {
    const std::lock_guard lock(mutex_);
    const Flight& flight = flights_[group][id];
    EXPECT_TRUE(flight.readers == 0 && !flight.written)
        << "a step writes into block " << id << " of group " << group << ", which is in flight";
  }

  void wait_while(std::unique_lock<std::mutex>& lock, const bool& held, uint64_t call) {
    waiting_++;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !held && call != held_call_; });
    waiting_--;
  }

  static bool is_zero(const unsigned char* bytes) {
    return std::all_of(bytes, bytes + block_bytes, [](unsigned char b) { return b == 0; });
  }

  int32_t result_of(uint64_t call) {
    if (result == 0 || call < fails_at || reliable_ > 0) return 0;
    failures++;
    return result;
  }

  // Returns whether a call names blocks of a group, each once.
  bool check_named(uint32_t group, size_t n, const uint32_t* ids) const {
    EXPECT_GT(n, 0u);
    EXPECT_LT(group, slabs_.size());
    if (group >= slabs_.size()) return false;
    std::vector<uint32_t> sorted(ids, ids + n);
    std::sort(sorted.begin(), sorted.end());
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    EXPECT_TRUE(twice == sorted.end()) << "block " << *twice << " is named twice in one call";
    EXPECT_LT(sorted.back(), flights_[group].size());
    return twice == sorted.end() && sorted.back() < flights_[group].size();
  }

  int32_t read(uint32_t group, size_t n, const uint32_t* ids, const uint32_t* tokens, void* to) {
    const uint64_t call = ++reads + writes;
    blocks_read += n;
    if (!check_named(group, n, ids)) return -EINVAL;
    EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(to) % 64);
    std::unique_lock lock(mutex_);
    for (size_t i = 0; i < n; i++) {
      Flight& flight = flights_[group][ids[i]];
      EXPECT_FALSE(flight.written) << "block " << ids[i] << " is read while it is written";
      flight.readers++;
    }
    wait_while(lock, reads_held_, call);
    auto* bytes = static_cast<unsigned char*>(to);
    for (size_t i = 0; i < n; i++, bytes += block_bytes) {
      EXPECT_GT(tokens[i], 0u);
      EXPECT_LE(tokens[i], block_size);
      EXPECT_TRUE(is_zero(bytes));
      std::memcpy(bytes, &slabs_[group][ids[i] * block_size], tokens[i] * sizeof(uint64_t));
      std::memcpy(bytes + block_bytes - sizeof end, end, sizeof end);
      flights_[group][ids[i]].readers--;
    }
    return result_of(call);
  }

  int32_t write(uint32_t group, size_t n, const uint32_t* ids, const void* from) {
    const uint64_t call = ++writes + reads;
    blocks_written += n;
    if (!check_named(group, n, ids)) return -EINVAL;
    std::unique_lock lock(mutex_);
    for (size_t i = 0; i < n; i++) {
      Flight& flight = flights_[group][ids[i]];
      EXPECT_FALSE(flight.written) << "block " << ids[i] << " is written twice";
      EXPECT_EQ(0, flight.readers) << "block " << ids[i] << " is written while it is read";
      flight.written = true;
    }
    wait_while(lock, writes_held_, call);
    const auto* bytes = static_cast<const unsigned char*>(from);
    for (size_t i = 0; i < n; i++, bytes += block_bytes) {
      // A file has zeros where the prefix index lost a block before it was read.
      EXPECT_TRUE(any_bytes || is_zero(bytes) ||
                  std::memcmp(bytes + block_bytes - sizeof end, end, sizeof end) == 0);
      std::memcpy(&slabs_[group][ids[i] * block_size], bytes, block_size * sizeof(uint64_t));
      flights_[group][ids[i]].written = false;
    }
    return result_of(call);
  }

  static inline thread_local int reliable_ = 0;
  std::vector<std::vector<uint64_t>> slabs_;  // by group, then slot
  pkv_block_io hooks_{};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reads_held_ = false, writes_held_ = false;
  uint64_t held_call_ = 0;
  int waiting_ = 0;                           // calls that wait while they are held
  std::vector<std::vector<Flight>> flights_;  // by group, then block
};

}  // namespace cache_test
