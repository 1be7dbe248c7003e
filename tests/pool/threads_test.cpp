// Many threads use one pool. A shadow count per block shows that no block is ever owned twice. Each
// block also has plain data without synchronisation, so ThreadSanitizer checks that the pool itself
// orders the use by one owner before that by the next.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "engine/memory/pool.h"

namespace pkv::memory {
namespace {

constexpr unsigned threads = 8;

template <class Body>
void run_threads(const Body& body) {
  std::atomic<bool> go{false};
  std::vector<std::thread> running;
  for (unsigned thread = 0; thread < threads; thread++)
    running.emplace_back([&, thread] {
      while (!go.load()) std::this_thread::yield();
      body(thread);
    });
  go.store(true);
  for (std::thread& thread : running) thread.join();
}

struct Counts {
  uint64_t allocs = 0, refusals = 0;  // Calls of alloc.
  uint64_t found = 0, stale = 0;      // Look-ups.
  uint64_t wrong = 0;
};

// What all threads share.
struct Arena {
  Arena(uint32_t blocks, uint32_t shards)
      : pool(blocks, std::pmr::new_delete_resource(), 0, shards),
        holders(blocks),
        data(blocks),
        published(std::max(blocks / 2, 1u)) {}

  Pool pool;
  // Raised after a reference was taken and lowered before it is released.
  std::vector<std::atomic<int>> holders;
  std::vector<Block> data;  // The owner's name, written once after alloc.
  // Blocks for others to look up. They may be stale.
  std::vector<std::atomic<Block>> published;
};

class Worker {
 public:
  Worker(Arena& arena, unsigned seed, uint32_t max_at_once)
      : arena_(arena), random_(seed), max_at_once_(max_at_once) {}

  Counts run(int steps) {
    for (int i = 0; i < steps; i++) switch (below(4)) {
        case 0:
          alloc(1 + below(max_at_once_));
          break;
        case 1:
          look_up();
          break;
        case 2:
          release_one();
          break;
        default:
          release_list(below(2 * max_at_once_));
      }
    release_list(held_.size());
    return counts_;
  }

 private:
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_()) % n; }
  void expect(bool holds) { counts_.wrong += !holds; }

  void alloc(size_t n) {
    std::vector<Block> blocks(n);
    if (!arena_.pool.try_alloc(n, blocks.data())) {
      counts_.refusals++;
      return;
    }
    counts_.allocs++;
    for (Block block : blocks) {
      expect(arena_.holders[block_id(block)].fetch_add(1, std::memory_order_relaxed) == 0);
      arena_.data[block_id(block)] = block;
      expect(arena_.pool.set_filled(block, 16));
      // Readers do not load this with acquire. set_filled() and retain() must be enough for the
      // data to be seen.
      arena_.published[below(static_cast<uint32_t>(arena_.published.size()))].store(
          block, std::memory_order_release);
      held_.push_back(block);
    }
  }

  void look_up() {
    const Block block =
        arena_.published[below(static_cast<uint32_t>(arena_.published.size()))].load(
            std::memory_order_relaxed);
    const pkv_status status = arena_.pool.retain(block);
    if (status != PKV_OK) {
      expect(status == PKV_NOT_HELD);
      counts_.stale++;
      return;
    }
    counts_.found++;
    expect(arena_.holders[block_id(block)].fetch_add(1, std::memory_order_relaxed) >= 0);
    expect(arena_.data[block_id(block)] == block);
    held_.push_back(block);
  }

  // Checks, before a reference is released, that the block is unchanged.
  void leave(Block block) {
    expect(arena_.data[block_id(block)] == block);
    expect(arena_.holders[block_id(block)].fetch_sub(1, std::memory_order_relaxed) >= 1);
  }

  void release_one() {
    if (held_.empty()) return;
    std::swap(held_[below(static_cast<uint32_t>(held_.size()))], held_.back());
    leave(held_.back());
    expect(arena_.pool.release(held_.back()) == PKV_OK);
    held_.pop_back();
  }

  void release_list(size_t n) {
    n = std::min(n, held_.size());
    const Block* list = held_.data() + held_.size() - n;
    for (size_t i = 0; i < n; i++) leave(list[i]);
    const pkv_status status = arena_.pool.release(n, list);
    // A look-up may have found a block that this thread holds already, and a list that has a block
    // twice is refused as a whole.
    expect(status == PKV_OK ||
           (status == PKV_NOT_HELD && arena_.pool.release_held({list, n}) == PKV_OK));
    held_.resize(held_.size() - n);
  }

  Arena& arena_;
  std::minstd_rand random_;
  const uint32_t max_at_once_;
  std::vector<Block> held_;
  Counts counts_;
};

Counts hammer(uint32_t blocks, uint32_t shards, uint32_t max_at_once, int steps) {
  Arena arena(blocks, shards);
  for (auto& slot : arena.published) slot = make_block(0, retired_generation);
  std::vector<Counts> counts(threads);
  run_threads(
      [&](unsigned thread) { counts[thread] = Worker(arena, thread + 1, max_at_once).run(steps); });
  Counts sum;
  for (const Counts& each : counts) {
    sum.allocs += each.allocs;
    sum.refusals += each.refusals;
    sum.found += each.found;
    sum.stale += each.stale;
    sum.wrong += each.wrong;
  }
  EXPECT_EQ(sum.wrong, 0u);
  EXPECT_EQ(arena.pool.free_count(), blocks);
  EXPECT_NO_THROW(arena.pool.validate());
  std::vector<Block> all(blocks);
  EXPECT_TRUE(arena.pool.try_alloc(blocks, all.data())) << "at rest";
  return sum;
}

TEST(PoolThreads, RoomForAll) {
  for (uint32_t shards : {1u, 16u}) {
    const Counts counts = hammer(4096, shards, 20, 20000);
    EXPECT_GT(counts.allocs, 1000u);
    EXPECT_GT(counts.stale, 0u);
  }
}

TEST(PoolThreads, ConstantExhaustion) {
  for (auto [blocks, shards] : {std::pair{1u, 1u},
                                {2u, 1u},
                                {5u, 1u},
                                {64u, 1u},
                                {70u, 1u},
                                {70u, 2u},
                                {130u, 3u},
                                {200u, 4u}}) {
    SCOPED_TRACE(testing::Message() << blocks << " blocks in " << shards << " shards");
    const Counts counts = hammer(blocks, shards, std::min(blocks / shards, 40u), 20000);
    EXPECT_GT(counts.allocs, 0u);
    EXPECT_GT(counts.refusals, 0u);
  }
}

// If nothing is released, a refusal means that the pool is empty: all blocks are given out, each
// once.
TEST(PoolThreads, NoFalseRefusalWithoutReleases) {
  for (int round = 0; round < 50; round++) {
    constexpr uint32_t blocks = 1000;
    Pool pool(blocks, std::pmr::new_delete_resource(), 0, round % 2 == 0 ? 1 : 16);
    std::vector<std::atomic<int>> owners(blocks);
    run_threads([&](unsigned) {
      for (Block block; pool.try_alloc(1, &block);) owners[block_id(block)]++;
    });
    EXPECT_TRUE(
        std::all_of(owners.begin(), owners.end(), [](const auto& owner) { return owner == 1; }));
    EXPECT_EQ(pool.free_count(), 0u);
    EXPECT_EQ(pool.stats().held_peak, blocks);
    pool.validate();
  }
}

// Of many threads that release the same reference exactly one succeeds, although the block is given
// out again at once.
TEST(PoolThreads, OneDoubleFreeWins) {
  for (int round = 0; round < 200; round++) {
    Pool pool(1, std::pmr::new_delete_resource());
    Block block, next = 0;
    ASSERT_TRUE(pool.try_alloc(1, &block));
    std::atomic<int> released{0};
    run_threads([&](unsigned thread) {
      const pkv_status status = pool.release(block);
      if (status == PKV_OK) released++;
      if (thread == 0)
        while (!pool.try_alloc(1, &next)) std::this_thread::yield();
    });
    EXPECT_EQ(released, 1);
    EXPECT_TRUE(pool.is_current(next));
    EXPECT_EQ(next, make_block(0, 1));
    pool.validate();
  }
}

}  // namespace
}  // namespace pkv::memory
