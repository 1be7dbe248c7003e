// Stops one call before each of its atomic operations in turn, and after the last. Meanwhile
// another thread makes calls, which must all finish.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/memory/pool.cpp"

namespace pkv::memory {
namespace {

// An atomics policy that counts and notes every operation, and runs the other thread before
// operation number `stop_at`.
struct SteppedAtomics {
  // The operations that change memory: s(wap), e(xchange), a(nd), o(r), + and w(rite). Loads are
  // not noted.
  inline static std::string changes;
  inline static int operations = 0;
  inline static int stop_at = 0;
  inline static uint32_t thread = 0;
  inline static std::function<void()> meanwhile;

  static uint32_t thread_number() noexcept { return thread; }

  static void step() {
    if (thread == 0 && operations++ == stop_at) switch_thread();
  }

  static void switch_thread() {
    if (!meanwhile) return;
    thread = 1;
    std::exchange(meanwhile, nullptr)();
    thread = 0;
  }

  template <class T>
  class atomic {
   public:
    atomic() = default;
    explicit atomic(T value) : value_(value) {}
    T load(std::memory_order) const {
      step();
      return value_;
    }
    void store(T value, std::memory_order) {
      change('w', [value](T) { return value; });
    }
    T fetch_add(T other, std::memory_order) {
      return change('+', [other](T now) { return now + other; });
    }
    T fetch_and(T other, std::memory_order) {
      return change('a', [other](T now) { return now & other; });
    }
    T fetch_or(T other, std::memory_order) {
      return change('o', [other](T now) { return now | other; });
    }
    T exchange(T value, std::memory_order) {
      return change('e', [value](T) { return value; });
    }
    bool compare_exchange_weak(T& expected, T desired, std::memory_order, std::memory_order) {
      const T seen = change('s', [&](T now) { return now == expected ? desired : now; });
      return std::exchange(expected, seen) == seen;
    }

   private:
    template <class Function>
    T change(char letter, Function function) {
      step();
      changes += letter;
      return std::exchange(value_, function(value_));
    }
    T value_{};
  };

  template <class T>
  using plain = T;
};

using SteppedPool = BasicPool<SteppedAtomics>;

class StoppedThread : public testing::Test {
 protected:
  // Plays a scenario once for each operation of the call that it stops.
  template <class Scenario>
  void at_every_operation(const Scenario& scenario) {
    stopped_inside_ = true;
    for (int stop_at = 0; stopped_inside_ && !HasFailure(); stop_at++) {
      SCOPED_TRACE(testing::Message() << "stopped before operation " << stop_at);
      SteppedAtomics::stop_at = stop_at;
      scenario();
    }
    EXPECT_GE(SteppedAtomics::stop_at, 2) << "operations of the call";
  }

  // Makes the call that is stopped.
  template <class Call>
  auto stopped(const std::function<void()>& meanwhile, const Call& call) {
    SteppedAtomics::operations = 0;
    SteppedAtomics::meanwhile = meanwhile;
    const auto result = call();
    stopped_inside_ = !SteppedAtomics::meanwhile;
    SteppedAtomics::switch_thread();
    return result;
  }

  static std::vector<Block> alloc(SteppedPool& pool, size_t n) {
    std::vector<Block> blocks(n);
    EXPECT_TRUE(pool.try_alloc(n, blocks.data()));
    return blocks;
  }

  bool stopped_inside_ = true;
};

// Pools with this many shards, if they have as many words.
class StoppedThreadInShards : public StoppedThread, public testing::WithParamInterface<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Shards, StoppedThreadInShards, testing::Values(1, 2, 4));

TEST_F(StoppedThread, OrderOfChanges) {
  SteppedPool pool(4, std::pmr::new_delete_resource());
  SteppedAtomics::changes.clear();
  const std::vector<Block> blocks = alloc(pool, 3);
  EXPECT_EQ(SteppedAtomics::changes, "sawww") << "counter, bits, states";
  SteppedAtomics::changes.clear();
  EXPECT_EQ(pool.release(blocks[0]), PKV_OK);
  EXPECT_EQ(SteppedAtomics::changes, "so+") << "state, bit, counter";
  SteppedAtomics::changes.clear();
  EXPECT_EQ(pool.release(2, blocks.data() + 1), PKV_OK);
  EXPECT_EQ(SteppedAtomics::changes, "sso+") << "neighbours go back together";
}

TEST_P(StoppedThreadInShards, AllocDoesNotHoldUpAlloc) {
  for (uint32_t blocks : {4u, 66u}) {
    at_every_operation([&] {
      SteppedPool pool(blocks, std::pmr::new_delete_resource(), 0, GetParam());
      alloc(pool, blocks - 4);
      std::vector<Block> mine(2), others;
      const bool taken = stopped(
          [&] {
            others = alloc(pool, 2);
            EXPECT_EQ(pool.release(2, others.data()), PKV_OK);
            others = alloc(pool, 2);
          },
          [&] { return pool.try_alloc(2, mine.data()); });
      EXPECT_TRUE(taken);
      std::set<uint32_t> ids;
      for (Block block : mine) ids.insert(block_id(block));
      for (Block block : others) ids.insert(block_id(block));
      EXPECT_EQ(ids, (std::set<uint32_t>{blocks - 4, blocks - 3, blocks - 2, blocks - 1}));
      EXPECT_EQ(pool.free_count(), 0u);
      pool.validate();
    });
  }
}

TEST_P(StoppedThreadInShards, ReleaseDoesNotHoldUpAlloc) {
  at_every_operation([&] {
    SteppedPool pool(130, std::pmr::new_delete_resource(), 0, GetParam());
    const std::vector<Block> all = alloc(pool, 130);
    const std::vector<Block> mine = {all[0], all[64], all[129]};
    EXPECT_EQ(pool.release(2, all.data() + 7), PKV_OK);
    std::vector<Block> others;
    const pkv_status status = stopped(
        [&] {
          // Every block that is counted as free can be taken, wherever the release was stopped.
          others = alloc(pool, pool.free_count());
          for (Block block : others) EXPECT_EQ(pool.state(block_id(block)), (BlockState{1, 1, 0}));
          const auto taken = [&](Block block) {
            return std::any_of(others.begin(), others.end(),
                               [&](Block other) { return block_id(other) == block_id(block); });
          };
          for (Block block : mine)
            EXPECT_EQ(pool.references(block_id(block)),
                      pool.is_current(block) || taken(block) ? 1u : 0u);
        },
        [&] { return pool.release(mine.size(), mine.data()); });
    EXPECT_EQ(status, PKV_OK);
    EXPECT_EQ(others.size() + pool.free_count(), 5u);
    pool.validate();
  });
}

TEST_F(StoppedThread, LookUpMeetsEviction) {
  at_every_operation([&] {
    SteppedPool pool(2, std::pmr::new_delete_resource());
    const Block cached = alloc(pool, 1)[0];
    const pkv_status status = stopped(
        [&] {
          EXPECT_EQ(pool.release(cached), PKV_OK);
          alloc(pool, 1);  // This gets the same id again, if it was free.
        },
        [&] { return pool.retain(cached); });
    EXPECT_EQ(status == PKV_OK, pool.is_current(cached));
    EXPECT_EQ(status == PKV_NOT_HELD, !pool.is_current(cached));
    EXPECT_EQ(pool.references(block_id(cached)), 1u);
    pool.validate();
  });
}

TEST_F(StoppedThread, EvictionMeetsLookUp) {
  at_every_operation([&] {
    SteppedPool pool(1, std::pmr::new_delete_resource());
    const Block cached = alloc(pool, 1)[0];
    pkv_status looked_up = PKV_OK;
    const pkv_status status =
        stopped([&] { looked_up = pool.retain(cached); }, [&] { return pool.release(cached); });
    EXPECT_EQ(status, PKV_OK);
    EXPECT_EQ(pool.references(0), looked_up == PKV_OK ? 1u : 0u);
    EXPECT_EQ(pool.is_current(cached), looked_up == PKV_OK);
    pool.validate();
  });
}

TEST_F(StoppedThread, DoubleFreeMeetsReuse) {
  at_every_operation([&] {
    SteppedPool pool(1, std::pmr::new_delete_resource());
    const Block block = alloc(pool, 1)[0];
    Block next = 0;
    pkv_status other = PKV_OK;
    const pkv_status status = stopped(
        [&] {
          other = pool.release(block);
          if (!pool.try_alloc(1, &next)) next = 0;
        },
        [&] { return pool.release(block); });
    EXPECT_EQ(std::set({status, other}), std::set({PKV_OK, PKV_NOT_HELD})) << "one of the two";
    EXPECT_EQ(pool.is_current(next), next != 0) << "the next owner keeps its block";
    EXPECT_EQ(pool.free_count(), next != 0 ? 0u : 1u);
    pool.validate();
  });
}

TEST_F(StoppedThread, FillMeetsShare) {
  at_every_operation([&] {
    SteppedPool pool(1, std::pmr::new_delete_resource());
    const Block block = alloc(pool, 1)[0];
    uint32_t filled_when_shared = 0;
    const bool filled = stopped(
        [&] {
          EXPECT_EQ(pool.retain(block), PKV_OK);
          filled_when_shared = pool.state(0).filled;
        },
        [&] { return pool.set_filled(block, 3); });
    EXPECT_EQ(filled, filled_when_shared == 3);
    EXPECT_EQ(pool.state(0), (BlockState{0, 2, filled_when_shared}))
        << "nothing is written after the share";
    pool.validate();
  });
}

// Three of four free blocks lie in two shards. One of two threads gets them, and never none.
TEST_P(StoppedThreadInShards, GatherMeetsGather) {
  at_every_operation([&] {
    SteppedPool pool(130, std::pmr::new_delete_resource(), 0, GetParam());
    const std::vector<Block> all = alloc(pool, 130);
    const std::vector<Block> free = {all[3], all[40], all[64], all[100]};
    EXPECT_EQ(pool.release(free.size(), free.data()), PKV_OK);
    std::vector<Block> mine(3), others(3);
    bool others_taken = false;
    const bool taken = stopped([&] { others_taken = pool.try_alloc(3, others.data()); },
                               [&] { return pool.try_alloc(3, mine.data()); });
    EXPECT_NE(taken, others_taken);
    const std::vector<Block>& got = taken ? mine : others;
    for (Block block : got) EXPECT_EQ(pool.references(block_id(block)), 1u);
    EXPECT_EQ(pool.release(3, got.data()), PKV_OK);
    EXPECT_EQ(alloc(pool, 4).size(), 4u) << "at rest all four can be taken";
    EXPECT_EQ(pool.stats().held_peak, 130u);
    pool.validate();
  });
}

// A thread that meets another one in a shard moves to its own shard.
TEST_F(StoppedThread, ThreadsPart) {
  std::vector<int> parted_at;
  at_every_operation([&] {
    SteppedPool pool(128, std::pmr::new_delete_resource(), 0, 2);
    std::vector<Block> blocks = alloc(pool, 128);
    const Block last = blocks.back();
    blocks.pop_back();
    // The second shard was the last one used.
    EXPECT_EQ(pool.release(blocks.size(), blocks.data()), PKV_OK);
    Block mine = 0;
    EXPECT_TRUE(stopped([&] { EXPECT_EQ(pool.release(last), PKV_OK); },
                        [&] { return pool.try_alloc(1, &mine); }));
    if (block_id(mine) < 64) parted_at.push_back(SteppedAtomics::stop_at);
    pool.validate();
  });
  EXPECT_EQ(parted_at, std::vector<int>{1}) << "between the look at the counter and the swap";
}

}  // namespace
}  // namespace pkv::memory
