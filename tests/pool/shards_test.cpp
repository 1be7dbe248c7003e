// Pools that count their free blocks in several shards.
#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "alloc.h"
#include "base/status.h"

namespace pkv::memory {
namespace {

TEST(Shards, AsManyAsSuitTheSize) {
  for (auto [blocks, shards] :
       {std::pair{1u, 1u}, {4032u, 1u}, {4096u, 4u}, {8192u, 8u}, {16384u, 16u}, {1000000u, 16u}})
    EXPECT_EQ(Pool(blocks, memory).shards(), shards) << blocks;
}

TEST(Shards, AsManyAsAskedForOfWholeWords) {
  for (auto [blocks, asked, shards] : {std::tuple{64u, 16u, 1u},
                                       {65u, 2u, 2u},
                                       {65u, 16u, 2u},
                                       {192u, 2u, 2u},
                                       {192u, 16u, 3u},
                                       {4096u, 1u, 1u},
                                       {4096u, 16u, 16u}}) {
    Pool pool(blocks, memory, 0, asked);
    EXPECT_EQ(pool.shards(), shards) << blocks << " blocks, " << asked << " asked for";
    EXPECT_EQ(pool.free_count(), blocks);
    pool.validate();
  }
  EXPECT_THROW(Pool(4096, memory, 0, 17), Error);
}

class ManyShards : public testing::TestWithParam<uint32_t> {};

TEST_P(ManyShards, FreshPoolGivesIdsInOrderToAnyThread) {
  for (const size_t n : {1u, 7u, 100u, 300u, 4200u}) {
    Pool pool(4200, memory, 0, GetParam());
    uint32_t next = 0;
    const auto take_half = [&] {
      for (size_t i = 0; i < 4200 / n; i += 2)
        for (const Block block : alloc(pool, n)) EXPECT_EQ(block, make_block(next++, 0));
    };
    std::thread(take_half).join();
    EXPECT_EQ(pool.free_count(), 4200 - next);
    pool.validate();
  }
}

TEST_P(ManyShards, EveryIdIsGivenOutOnce) {
  for (const size_t n : {1u, 5u, 64u, 1000u}) {
    Pool pool(1000, memory, 0, GetParam());
    std::set<Block> seen;
    while (pool.free_count() >= n)
      for (const Block block : alloc(pool, n)) EXPECT_TRUE(seen.insert(block).second);
    std::vector<Block> none(n, 42);
    EXPECT_FALSE(pool.try_alloc(n, none.data()));
    EXPECT_EQ(none, std::vector<Block>(n, 42));
    EXPECT_EQ(seen.size(), 1000 / n * n);
    EXPECT_EQ(pool.stats().held_peak, seen.size());
    pool.validate();
    for (const Block block : seen) EXPECT_EQ(pool.release(block), PKV_OK);
    EXPECT_EQ(pool.free_count(), 1000u);
    pool.validate();
  }
}

// Each shard has one of the last free blocks.
TEST_P(ManyShards, GathersWhatIsLeft) {
  Pool pool(1024, memory, 0, GetParam());
  const std::vector<Block> all = alloc(pool, 1024);
  std::set<uint32_t> left;
  for (uint32_t id = 17; id < 1024; id += 64) {
    EXPECT_EQ(pool.release(all[id]), PKV_OK);
    left.insert(id);
  }
  Block out[17];
  EXPECT_FALSE(pool.try_alloc(17, out));
  EXPECT_EQ(pool.free_count(), 16u) << "a refusal gives back what it gathered";
  pool.validate();
  EXPECT_TRUE(pool.try_alloc(16, out));
  for (uint32_t i = 0; i < 16; i++) EXPECT_EQ(left.erase(block_id(out[i])), 1u);
  pool.validate();
}

// Use wanders from word to word. The number of blocks in use, and so the peak, stays the same.
TEST_P(ManyShards, PeakIsOfThePoolNotOfItsShards) {
  Pool pool(1024, memory, 0, GetParam());
  std::set<uint32_t> words;
  for (int i = 0; i < 20; i++) {
    const std::vector<Block> many = alloc(pool, 64), few = alloc(pool, 30);
    EXPECT_EQ(pool.release(64, many.data()), PKV_OK);
    EXPECT_EQ(pool.release(30, few.data()), PKV_OK);
    EXPECT_EQ(pool.stats().held_peak, 94u);
    words.insert(block_id(many[0]) / 64);
  }
  EXPECT_GE(words.size(), 8u);
  alloc(pool, 1024);
  EXPECT_EQ(pool.stats().held_peak, 1024u);
}

TEST_P(ManyShards, BlocksRetireInTheirShards) {
  Pool pool(1024, memory, retired_generation - 1, GetParam());
  const std::vector<Block> all = alloc(pool, 1024);
  EXPECT_EQ(pool.release(1000, all.data()), PKV_OK);
  EXPECT_EQ(pool.retired(), 1000u);
  EXPECT_EQ(pool.free_count(), 0u);
  EXPECT_EQ(pool.stats().held, 24u);
  pool.validate();
}

INSTANTIATE_TEST_SUITE_P(Shards, ManyShards, testing::Values(1, 2, 16));

}  // namespace
}  // namespace pkv::memory
