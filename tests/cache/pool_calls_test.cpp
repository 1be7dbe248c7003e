// A pool through the C interface: the life of a block, lists of blocks, and what is refused.
#include <array>
#include <set>

#include "../support/cache.h"

namespace cache_test::pool_calls_test {
namespace {

pkv_block_ref allocate(pkv_pool pool) {
  pkv_block_ref block;
  CHECK(pkv_pool_alloc(pool, 1, &block));
  return block;
}

TEST(PoolCalls, FreshBlocksComeInOrder) {
  Pool pool = make_pool(200);
  for (uint32_t id = 0; id < 200; id++) EXPECT_EQ(id, PKV_BLOCK_ID(allocate(pool)));
}

TEST(PoolCalls, ReleaseFreesOnlyBlocksWithoutOtherHolders) {
  Pool pool = make_pool(3);
  std::array<pkv_block_ref, 3> blocks;
  CHECK(pkv_pool_alloc(pool, 3, blocks.data()));
  CHECK(pkv_pool_retain(pool, 1, &blocks[1]));
  CHECK(pkv_pool_release(pool, 3, blocks.data()));
  auto stats = made<pkv_pool_stats>();
  CHECK(pkv_pool_get_stats(pool, &stats));
  EXPECT_EQ(2u, stats.free_blocks);
  EXPECT_EQ(1u, stats.held_blocks);
  EXPECT_EQ(1u, stats.references);
  CHECK(pkv_pool_release(pool, 1, &blocks[1]));
  CHECK(pkv_pool_get_stats(pool, &stats));
  EXPECT_EQ(3u, stats.free_blocks);
  CHECK(pkv_pool_validate(pool));
}

// A pool of 8 blocks, which is sound after each test.
class SmallPool : public testing::Test {
 protected:
  void TearDown() override { CHECK(pkv_pool_validate(pool)); }

  uint64_t free_blocks() const {
    auto stats = made<pkv_pool_stats>();
    CHECK(pkv_pool_get_stats(pool, &stats));
    return stats.free_blocks;
  }

  Pool pool = make_pool(8);
};

TEST_F(SmallPool, AReleasedBlockComesBackInItsNextGeneration) {
  pkv_block_ref block;
  CHECK(pkv_pool_alloc(pool, 1, &block));
  EXPECT_EQ(7u, free_blocks());
  CHECK(pkv_pool_release(pool, 1, &block));
  EXPECT_EQ(8u, free_blocks());
  pkv_block_ref again;
  CHECK(pkv_pool_alloc(pool, 1, &again));
  EXPECT_EQ(PKV_BLOCK_ID(block), PKV_BLOCK_ID(again));
  EXPECT_NE(block, again) << "the block's next life has another generation";
}

TEST_F(SmallPool, IsOutOfBlocksUntilOneIsReleased) {
  std::array<pkv_block_ref, 8> blocks;
  for (pkv_block_ref& block : blocks) CHECK(pkv_pool_alloc(pool, 1, &block));
  EXPECT_EQ(8u, std::set<pkv_block_ref>(blocks.begin(), blocks.end()).size());
  pkv_block_ref more = 77;
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_pool_alloc(pool, 1, &more));
  EXPECT_EQ(77u, more);
  CHECK(pkv_pool_release(pool, 1, &blocks[5]));
  CHECK(pkv_pool_alloc(pool, 1, &more));
  EXPECT_EQ(5u, PKV_BLOCK_ID(more));
}

TEST_F(SmallPool, DoubleFreeIsRefused) {
  std::array<pkv_block_ref, 2> blocks;
  CHECK(pkv_pool_alloc(pool, 2, blocks.data()));
  CHECK(pkv_pool_release(pool, 1, &blocks[0]));
  REFUSED(PKV_NOT_HELD, pkv_pool_release(pool, 1, &blocks[0]));
  const std::array<pkv_block_ref, 2> twice = {blocks[1], blocks[1]};
  REFUSED(PKV_NOT_HELD, pkv_pool_release(pool, 2, twice.data()));
  EXPECT_EQ(7u, free_blocks()) << "a list is all or nothing";
  pkv_block_ref next;
  CHECK(pkv_pool_alloc(pool, 1, &next));
  EXPECT_EQ(PKV_BLOCK_ID(blocks[0]), PKV_BLOCK_ID(next));
  REFUSED(PKV_NOT_HELD, pkv_pool_release(pool, 1, &blocks[0]));
  EXPECT_EQ(6u, free_blocks()) << "the stale name does not free the block's new owner's";
}

TEST_F(SmallPool, AnInvalidIdIsRefused) {
  const pkv_block_ref beyond = 8;
  REFUSED(PKV_OUT_OF_RANGE, pkv_pool_release(pool, 1, &beyond));
  REFUSED(PKV_OUT_OF_RANGE, pkv_pool_retain(pool, 1, &beyond));
}

TEST_F(SmallPool, ManyAtOnceAreAllOrNothing) {
  std::array<pkv_block_ref, 8> blocks;
  CHECK(pkv_pool_alloc(pool, 5, blocks.data()));
  std::array<pkv_block_ref, 4> more = {1, 2, 3, 4};
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_pool_alloc(pool, 4, more.data()));
  EXPECT_EQ((std::array<pkv_block_ref, 4>{1, 2, 3, 4}), more);
  EXPECT_EQ(3u, free_blocks());
  CHECK(pkv_pool_alloc(pool, 3, &blocks[5]));
  REFUSED(PKV_TOO_LARGE, pkv_pool_alloc(pool, 9, more.data()));
  CHECK(pkv_pool_alloc(pool, 0, nullptr));
}

}  // namespace
}  // namespace cache_test::pool_calls_test
