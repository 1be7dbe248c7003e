// A pool with one caller, block by block.
#include "engine/memory/pool.h"

#include <gtest/gtest.h>

#include <memory_resource>
#include <new>
#include <set>
#include <thread>
#include <vector>

#include "alloc.h"
#include "base/status.h"

namespace pkv::memory {
namespace {

TEST(Pool, FreshPoolGivesIdsInOrderToAnyThread) {
  Pool pool(200, memory);
  for (uint32_t id = 0; id < 3; id++) EXPECT_EQ(alloc(pool, 1)[0], make_block(id, 0));
  std::thread([&pool] {
    Pool other(200, memory);
    const std::vector<Block> blocks = alloc(other, 200);
    for (uint32_t id = 0; id < 200; id++) EXPECT_EQ(blocks[id], make_block(id, 0));
    for (uint32_t id = 3; id < 200; id++) EXPECT_EQ(alloc(pool, 1)[0], make_block(id, 0));
  }).join();
  pool.validate();
}

TEST(Pool, FreedBlockComesBackInItsNextGeneration) {
  Pool pool(4, memory);
  const Block first = alloc(pool, 1)[0];
  EXPECT_EQ(pool.free_count(), 3u);
  EXPECT_EQ(pool.release(first), PKV_OK);
  EXPECT_EQ(pool.free_count(), 4u);
  EXPECT_EQ(alloc(pool, 1)[0], make_block(0, 1));
  pool.validate();
}

TEST(Pool, WarmWordIsUsedFirst) {
  Pool pool(256, memory);
  const std::vector<Block> blocks = alloc(pool, 256);
  EXPECT_EQ(pool.release(blocks[7]), PKV_OK);
  EXPECT_EQ(pool.release(blocks[205]), PKV_OK);
  EXPECT_EQ(pool.release(blocks[200]), PKV_OK);
  EXPECT_EQ(block_id(alloc(pool, 1)[0]), 200u);
  EXPECT_EQ(block_id(alloc(pool, 1)[0]), 205u);
  EXPECT_EQ(block_id(alloc(pool, 1)[0]), 7u);
}

TEST(Pool, ExhaustionTakesNothing) {
  Pool pool(70, memory);
  alloc(pool, 68);
  std::vector<Block> out(3, 42);
  EXPECT_FALSE(pool.try_alloc(3, out.data()));
  EXPECT_EQ(out, std::vector<Block>(3, 42));
  EXPECT_EQ(pool.free_count(), 2u);
  pool.validate();
  EXPECT_TRUE(pool.try_alloc(2, out.data()));
  EXPECT_FALSE(pool.try_alloc(1, out.data()));
  EXPECT_TRUE(pool.try_alloc(0, nullptr));
  EXPECT_FALSE(pool.try_alloc(SIZE_MAX, out.data()));
  pool.validate();
}

TEST(Pool, EveryCapacityGivesEachIdOnce) {
  for (uint32_t blocks : {1u, 2u, 63u, 64u, 65u, 127u, 128u, 129u, 1000u}) {
    Pool pool(blocks, memory);
    std::set<Block> seen;
    for (uint32_t i = 0; i < blocks; i++) EXPECT_TRUE(seen.insert(alloc(pool, 1)[0]).second);
    EXPECT_EQ(*seen.rbegin(), blocks - 1);
    Block none;
    EXPECT_FALSE(pool.try_alloc(1, &none));
    pool.validate();
    for (Block block : seen) EXPECT_EQ(pool.release(block), PKV_OK);
    EXPECT_EQ(pool.free_count(), blocks);
    pool.validate();
  }
}

TEST(Pool, DoubleFreeIsRefused) {
  Pool pool(2, memory);
  const Block block = alloc(pool, 1)[0];
  EXPECT_EQ(pool.release(block), PKV_OK);
  EXPECT_EQ(pool.release(block), PKV_NOT_HELD);
  EXPECT_EQ(alloc(pool, 1)[0], make_block(0, 1));
  EXPECT_EQ(pool.release(block), PKV_NOT_HELD) << "the id lives on with another owner";
  EXPECT_EQ(pool.references(0), 1u);
  pool.validate();
}

TEST(Pool, StaleAndForgedBlocksAreRefusedEverywhere) {
  Pool pool(2, memory);
  const Block stale = alloc(pool, 1)[0];
  EXPECT_EQ(pool.release(stale), PKV_OK);
  const Block current = alloc(pool, 1)[0];
  ASSERT_EQ(block_id(stale), block_id(current));
  for (Block bad : {stale, make_block(1, 0), make_block(0, 2), make_block(0, retired_generation)}) {
    EXPECT_FALSE(pool.is_current(bad));
    EXPECT_EQ(pool.retain(bad), PKV_NOT_HELD);
    EXPECT_EQ(pool.release(bad), PKV_NOT_HELD);
    EXPECT_FALSE(pool.set_filled(bad, 1));
  }
  for (Block bad : {Block{2}, make_block(UINT32_MAX, 0), make_block(UINT32_MAX, UINT32_MAX)}) {
    EXPECT_FALSE(pool.is_current(bad));
    EXPECT_EQ(pool.retain(bad), PKV_OUT_OF_RANGE);
    EXPECT_EQ(pool.release(bad), PKV_OUT_OF_RANGE);
    EXPECT_FALSE(pool.set_filled(bad, 1));
  }
  EXPECT_TRUE(pool.is_current(current));
  EXPECT_EQ(pool.state(0), (BlockState{1, 1, 0}));
  pool.validate();
}

TEST(Pool, LastReferenceFrees) {
  Pool pool(2, memory);
  const Block block = alloc(pool, 1)[0];
  EXPECT_EQ(pool.retain(block), PKV_OK);
  EXPECT_EQ(pool.retain(block), PKV_OK);
  EXPECT_EQ(pool.references(0), 3u);
  for (uint32_t left : {2u, 1u}) {
    EXPECT_EQ(pool.release(block), PKV_OK);
    EXPECT_EQ(pool.references(0), left);
    EXPECT_EQ(pool.free_count(), 1u);
    pool.validate();
  }
  EXPECT_EQ(pool.release(block), PKV_OK);
  EXPECT_EQ(pool.free_count(), 2u);
  EXPECT_EQ(pool.retain(block), PKV_NOT_HELD);
  pool.validate();
}

TEST(Pool, ReferenceLimit) {
  Pool pool(1, memory);
  const Block block = alloc(pool, 1)[0];
  for (uint32_t i = 1; i < max_references; i++) ASSERT_EQ(pool.retain(block), PKV_OK);
  EXPECT_EQ(pool.retain(block), PKV_LIMIT_REACHED);
  EXPECT_EQ(pool.state(0), (BlockState{0, max_references, 0}))
      << "the neighbours in the word are untouched";
  for (uint32_t i = 1; i < max_references; i++) ASSERT_EQ(pool.release(block), PKV_OK);
  EXPECT_EQ(pool.references(0), 1u);
  pool.validate();
}

TEST(Pool, SharedBlockIsNotFilled) {
  Pool pool(1, memory);
  const Block block = alloc(pool, 1)[0];
  EXPECT_TRUE(pool.set_filled(block, max_block_size));
  EXPECT_EQ(pool.state(0), (BlockState{0, 1, max_block_size}));
  EXPECT_TRUE(pool.set_filled(block, 3));
  EXPECT_EQ(pool.retain(block), PKV_OK);
  EXPECT_FALSE(pool.set_filled(block, 4));
  EXPECT_EQ(pool.state(0), (BlockState{0, 2, 3}));
  EXPECT_EQ(pool.release(block), PKV_OK);
  EXPECT_TRUE(pool.set_filled(block, 4));
  EXPECT_EQ(pool.release(block), PKV_OK);
  EXPECT_EQ(pool.state(0), (BlockState{1, 0, 0})) << "a block that is freed is emptied";
  pool.validate();
}

TEST(Pool, GenerationThatWouldWrapRetiresTheBlock) {
  Pool pool(2, memory, retired_generation - 2);
  Block last{};
  for (int life = 0; life < 2; life++) {
    last = alloc(pool, 1)[0];
    EXPECT_EQ(block_id(last), 0u);
    EXPECT_EQ(pool.release(last), PKV_OK);
    pool.validate();
  }
  EXPECT_EQ(block_generation(last), retired_generation - 1);
  EXPECT_EQ(pool.retired(), 1u);
  EXPECT_EQ(pool.free_count(), 1u);
  EXPECT_EQ(pool.retain(make_block(0, retired_generation)), PKV_NOT_HELD);
  EXPECT_EQ(pool.release(make_block(0, retired_generation)), PKV_NOT_HELD);
  EXPECT_EQ(block_id(alloc(pool, 1)[0]), 1u);
  Block none;
  EXPECT_FALSE(pool.try_alloc(1, &none));
  const PoolStats stats = pool.stats();
  EXPECT_EQ(stats.retired, 1u);
  EXPECT_EQ(stats.held, 1u);
  EXPECT_EQ(stats.free, 0u);
  pool.validate();
}

TEST(Pool, StatsCountEveryBlockOnce) {
  Pool pool(100, memory);
  const std::vector<Block> blocks = alloc(pool, 10);
  EXPECT_EQ(pool.retain(3, blocks.data()), PKV_OK);
  EXPECT_TRUE(pool.set_filled(blocks[9], 7));
  EXPECT_EQ(pool.release(4, blocks.data() + 3), PKV_OK);
  const PoolStats stats = pool.stats();
  EXPECT_EQ(stats.blocks, 100u);
  EXPECT_EQ(stats.free, 94u);
  EXPECT_EQ(stats.held, 6u);
  EXPECT_EQ(stats.shared, 3u);
  EXPECT_EQ(stats.retired, 0u);
  EXPECT_EQ(stats.references, 9u);
  EXPECT_EQ(stats.filled_slots, 7u);
  EXPECT_EQ(stats.held_peak, 10u);
}

TEST(Pool, RefusesSizesItCannotHold) {
  for (const uint32_t blocks : {0u, uint32_t{1} << 31, UINT32_MAX}) {
    try {
      Pool pool(blocks, memory);
      ADD_FAILURE() << blocks << " blocks";
    } catch (const Error& error) {
      EXPECT_EQ(error.status, PKV_INVALID_ARGUMENT);
    }
  }
}

// A memory resource that counts bytes and refuses to exceed a limit.
class CountingMemory final : public std::pmr::memory_resource {
 public:
  explicit CountingMemory(size_t limit) : limit_(limit) {}
  size_t taken() const { return taken_; }

 private:
  void* do_allocate(size_t size, size_t alignment) override {
    if (size > limit_ - taken_) throw std::bad_alloc();
    taken_ += size;
    return memory->allocate(size, alignment);
  }
  void do_deallocate(void* p, size_t size, size_t alignment) override {
    taken_ -= size;
    memory->deallocate(p, size, alignment);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  const size_t limit_;
  size_t taken_ = 0;
};

TEST(Pool, TakesExactlyTheBytesItPlans) {
  for (uint32_t blocks : {1u, 64u, 65u, 1000u}) {
    CountingMemory counting(SIZE_MAX);
    {
      Pool pool(blocks, &counting);
      EXPECT_EQ(counting.taken(), Pool::bookkeeping_bytes(blocks));
    }
    EXPECT_EQ(counting.taken(), 0u);
    for (uint64_t limit = 0; limit < Pool::bookkeeping_bytes(blocks); limit += 8) {
      CountingMemory scarce(limit);
      EXPECT_THROW(Pool(blocks, &scarce), std::bad_alloc);
      EXPECT_EQ(scarce.taken(), 0u);
    }
  }
}

TEST(Pool, LongListInDisorderNeedsScratch) {
  CountingMemory scarce(Pool::bookkeeping_bytes(200));
  Pool pool(200, &scarce);
  std::vector<Block> blocks = alloc(pool, 66);
  std::swap(blocks[0], blocks[1]);
  EXPECT_EQ(pool.release(65, blocks.data()), PKV_OUT_OF_MEMORY);
  EXPECT_EQ(pool.free_count(), 134u);
  EXPECT_EQ(pool.release(64, blocks.data() + 2), PKV_OK) << "few";
  EXPECT_EQ(pool.release_held(std::span(blocks).first(2)), PKV_OK);
  blocks = alloc(pool, 200);
  std::sort(blocks.begin(), blocks.end(),
            [](Block a, Block b) { return block_id(a) < block_id(b); });
  EXPECT_EQ(pool.release(200, blocks.data()), PKV_OK) << "in order";
  pool.validate();
}

}  // namespace
}  // namespace pkv::memory
