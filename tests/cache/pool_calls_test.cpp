// A pool through the C interface: the life of a block, lists of blocks, and what is refused.
#include <array>
#include <set>

#include "../support/cache.h"

namespace cache_test::pool_calls_test {
namespace {

constexpr uint32_t block_size = 16;

pkv_block allocate(pkv_pool pool) {
  pkv_block block;
  CHECK(pkv_pool_alloc(pool, 1, &block));
  return block;
}

pkv_block_info info_of(pkv_pool pool, pkv_block block) {
  auto info = made<pkv_block_info>();
  CHECK(pkv_pool_get_block_info(pool, PKV_BLOCK_ID(block), &info));
  return info;
}

// Appends slots to a sequence: the next one of the last block, or the first one of a new block if
// the last is full or sealed.
struct Appender {
  pkv_pool pool;
  std::vector<pkv_block> table;

  int64_t append() {
    uint32_t offset = 0;
    const pkv_status status =
        table.empty() ? PKV_BLOCK_FULL : pkv_pool_claim(pool, table.back(), 1, &offset);
    if (status == PKV_BLOCK_FULL || status == PKV_BLOCK_SEALED) {
      table.push_back(allocate(pool));
      CHECK(pkv_pool_claim(pool, table.back(), 1, &offset));
    } else {
      CHECK(status);
    }
    return int64_t{PKV_BLOCK_ID(table.back())} * block_size + offset;
  }
};

TEST(PoolCalls, BlockInfoFollowsClaimSealResetAndRelease) {
  Pool pool = make_pool(4);
  EXPECT_EQ(0u, info_of(pool, 0).references);
  const pkv_block block = allocate(pool);
  pkv_block_info info = info_of(pool, block);
  EXPECT_EQ(1u, info.references);
  EXPECT_EQ(0u, info.filled_slots);
  EXPECT_EQ(0u, info.sealed);

  uint32_t offset = 99;
  CHECK(pkv_pool_claim(pool, block, 10, &offset));
  EXPECT_EQ(0u, offset);
  CHECK(pkv_pool_claim(pool, block, 6, &offset));
  EXPECT_EQ(10u, offset);
  EXPECT_EQ(16u, info_of(pool, block).filled_slots);
  REFUSED(PKV_BLOCK_FULL, pkv_pool_claim(pool, block, 1, &offset));
  CHECK(pkv_pool_seal(pool, block));
  EXPECT_EQ(1u, info_of(pool, block).sealed);
  CHECK(pkv_pool_seal(pool, block));

  CHECK(pkv_pool_reset(pool, block));
  info = info_of(pool, block);
  EXPECT_EQ(0u, info.filled_slots);
  EXPECT_EQ(0u, info.sealed);
  EXPECT_EQ(1u, info.references);

  CHECK(pkv_pool_claim(pool, block, 3, &offset));
  CHECK(pkv_pool_release(pool, 1, &block));
  info = info_of(pool, block);
  EXPECT_EQ(0u, info.references);
  EXPECT_EQ(0u, info.filled_slots);
  EXPECT_EQ(1u, info.generation);
  CHECK(pkv_pool_validate(pool));
}

TEST(PoolCalls, FreshBlocksComeInOrder) {
  Pool pool = make_pool(200);
  for (uint32_t id = 0; id < 200; id++) EXPECT_EQ(id, PKV_BLOCK_ID(allocate(pool)));
}

TEST(PoolCalls, AppendTakesABlockOnlyWhenTheLastIsFullOrSealed) {
  Pool pool = make_pool(8);
  Appender sequence{pool, {}};
  for (int64_t i = 0; i < 20; i++) EXPECT_EQ(i, sequence.append());
  EXPECT_EQ(2u, sequence.table.size());
  CHECK(pkv_pool_seal(pool, sequence.table.back()));
  EXPECT_EQ(2 * 16, sequence.append());
  EXPECT_EQ(3u, sequence.table.size());
  CHECK(pkv_pool_validate(pool));
}

TEST(PoolCalls, ReleaseFreesOnlyBlocksWithoutOtherHolders) {
  Pool pool = make_pool(3);
  std::array<pkv_block, 3> blocks;
  CHECK(pkv_pool_alloc(pool, 3, blocks.data()));
  CHECK(pkv_pool_retain(pool, 1, &blocks[1]));
  CHECK(pkv_pool_release(pool, 3, blocks.data()));
  auto stats = made<pkv_pool_stats>();
  CHECK(pkv_pool_get_stats(pool, &stats));
  EXPECT_EQ(2u, stats.free_blocks);
  EXPECT_EQ(1u, stats.used_blocks);
  EXPECT_EQ(1u, info_of(pool, blocks[1]).references);
  CHECK(pkv_pool_release(pool, 1, &blocks[1]));
  CHECK(pkv_pool_get_stats(pool, &stats));
  EXPECT_EQ(3u, stats.free_blocks);
  CHECK(pkv_pool_validate(pool));
}

TEST(PoolCalls, RefusedCallsChangeNothing) {
  Pool pool = make_pool(2);
  const pkv_block first = allocate(pool), second = allocate(pool);
  pkv_block none = 77;
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_pool_alloc(pool, 1, &none));
  EXPECT_EQ(77u, none);
  uint32_t offset = 77;
  REFUSED(PKV_OUT_OF_RANGE, pkv_pool_claim(pool, 2, 1, &offset));
  CHECK(pkv_pool_seal(pool, first));
  REFUSED(PKV_BLOCK_SEALED, pkv_pool_claim(pool, first, 1, &offset));
  CHECK(pkv_pool_retain(pool, 1, &second));
  REFUSED(PKV_BLOCK_SHARED, pkv_pool_claim(pool, second, 1, &offset));
  EXPECT_EQ(77u, offset);
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
  pkv_block block;
  CHECK(pkv_pool_alloc(pool, 1, &block));
  EXPECT_EQ(7u, free_blocks());
  CHECK(pkv_pool_release(pool, 1, &block));
  EXPECT_EQ(8u, free_blocks());
  pkv_block again;
  CHECK(pkv_pool_alloc(pool, 1, &again));
  EXPECT_EQ(PKV_BLOCK_ID(block), PKV_BLOCK_ID(again));
  EXPECT_NE(block, again) << "the block's next life has another generation";
}

TEST_F(SmallPool, IsOutOfBlocksUntilOneIsReleased) {
  std::array<pkv_block, 8> blocks;
  for (pkv_block& block : blocks) CHECK(pkv_pool_alloc(pool, 1, &block));
  EXPECT_EQ(8u, std::set<pkv_block>(blocks.begin(), blocks.end()).size());
  pkv_block more;
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_pool_alloc(pool, 1, &more));
  CHECK(pkv_pool_release(pool, 1, &blocks[5]));
  CHECK(pkv_pool_alloc(pool, 1, &more));
  EXPECT_EQ(5u, PKV_BLOCK_ID(more));
}

TEST_F(SmallPool, DoubleFreeIsRefused) {
  std::array<pkv_block, 2> blocks;
  CHECK(pkv_pool_alloc(pool, 2, blocks.data()));
  CHECK(pkv_pool_release(pool, 1, &blocks[0]));
  REFUSED(PKV_NOT_HELD, pkv_pool_release(pool, 1, &blocks[0]));
  const std::array<pkv_block, 2> twice = {blocks[1], blocks[1]};
  REFUSED(PKV_NOT_HELD, pkv_pool_release(pool, 2, twice.data()));
  EXPECT_EQ(7u, free_blocks()) << "a list is all or nothing";
  pkv_block next;
  CHECK(pkv_pool_alloc(pool, 1, &next));
  EXPECT_EQ(PKV_BLOCK_ID(blocks[0]), PKV_BLOCK_ID(next));
  REFUSED(PKV_NOT_HELD, pkv_pool_release(pool, 1, &blocks[0]));
  EXPECT_EQ(6u, free_blocks()) << "the stale name does not free the block's new owner's";
}

TEST_F(SmallPool, AnInvalidIdIsRefused) {
  const pkv_block beyond = 8;
  REFUSED(PKV_OUT_OF_RANGE, pkv_pool_release(pool, 1, &beyond));
  REFUSED(PKV_OUT_OF_RANGE, pkv_pool_retain(pool, 1, &beyond));
}

TEST_F(SmallPool, ManyAtOnceAreAllOrNothing) {
  std::array<pkv_block, 8> blocks;
  CHECK(pkv_pool_alloc(pool, 5, blocks.data()));
  std::array<pkv_block, 4> more = {1, 2, 3, 4};
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_pool_alloc(pool, 4, more.data()));
  EXPECT_EQ((std::array<pkv_block, 4>{1, 2, 3, 4}), more);
  EXPECT_EQ(3u, free_blocks());
  CHECK(pkv_pool_alloc(pool, 3, &blocks[5]));
  REFUSED(PKV_TOO_LARGE, pkv_pool_alloc(pool, 9, more.data()));
  CHECK(pkv_pool_alloc(pool, 0, nullptr));
}

}  // namespace
}  // namespace cache_test::pool_calls_test
