// The block table of a session: the blocks that it holds as it grows, reserves, is trimmed and
// closed.
#include "../support/cache.h"
#include "../support/rows.h"

namespace cache_test::block_table_test {
namespace {

constexpr uint32_t block_size = 16;

const Model model{2, 4, 2, 32};

TEST(BlockTable, MapsTokensToBlocksAndOffsets) {
  Cache cache = create(config_of(model, 8, PKV_STORAGE_EXTERNAL));
  // Another session takes blocks in between, so that ids are not just 0, 1, 2.
  Session other = open(cache), session = open(cache);
  for (uint32_t i = 0; i < 40; i++) {
    if (i % block_size == 0) grow(cache, other, block_size);
    grow(cache, session, 1);
  }
  const std::vector<uint32_t> table = block_table(session);
  ASSERT_EQ(3u, table.size());
  EXPECT_EQ(slots_of(session, 40), kv_indices(cache, session));
  EXPECT_NE(table[0] + 1, table[1]);
}

TEST(BlockTable, GrowsAtBlockBoundariesOnly) {
  Cache cache = create(config_of(model, 8, PKV_STORAGE_EXTERNAL));
  Session session = open(cache);
  EXPECT_EQ(0u, pool_stats_of(cache).held_blocks);
  for (uint32_t length = 1; length <= 100; length++) {
    grow(cache, session, 1);
    EXPECT_EQ((length + block_size - 1) / block_size, pool_stats_of(cache).held_blocks)
        << length << " tokens";
  }
}

TEST(BlockTable, APartFilledBlockCountsAsAWholeOne) {
  for (const auto& [tokens, blocks] :
       {std::pair(1u, 1u), {15u, 1u}, {16u, 1u}, {17u, 2u}, {100u, 7u}, {112u, 7u}, {113u, 8u}}) {
    Cache cache = create(config_of(model, 8, PKV_STORAGE_EXTERNAL));
    Session session = open(cache, tokens);
    EXPECT_EQ(blocks, block_table(session).size()) << tokens << " tokens";
    grow(cache, session, tokens);
    EXPECT_EQ(blocks, pool_stats_of(cache).held_blocks) << "what was reserved is what is used";
  }
}

// A token that sees only itself needs no block before its own. So each full block that left the
// window is a place to trim to.
TEST(BlockTable, IsTrimmedToAnyFullBlockUnderAWindowOfOneToken) {
  const Cache cache = create(config_of(Model{.window = 1}, 8, PKV_STORAGE_EXTERNAL));
  const Session session = open(cache);
  for (int i = 0; i < 3; i++) grow(cache, session, 30);
  uint64_t length = 0;
  CHECK(pkv_session_get_trim_point(session, 40, &length));
  EXPECT_EQ(32u, length);
  REFUSED(PKV_OUT_OF_RANGE, pkv_session_trim(session, 33));
  CHECK(pkv_session_trim(session, 32));
}

TEST(BlockTable, SeventyThreeTokensHoldFiveBlocks) {
  Cache cache = create(config_of(model, 16));
  Session session = open(cache);
  Random random(1);
  step(cache, session, model, 73, random);
  EXPECT_EQ(5u, block_table(session).size());
  EXPECT_EQ(5u, pool_stats_of(cache).held_blocks);
  EXPECT_EQ(73u, stats_of(cache).filled_slots);
}

TEST(BlockTable, ReservingGrowsOnDemandAndNeverShrinks) {
  Cache cache = create(config_of(model, 16));
  Session session = open(cache);
  const uint64_t wanted[] = {1, 16, 17, 10, 73, 80, 81};
  const size_t held[] = {1, 1, 2, 2, 5, 5, 6};
  for (size_t i = 0; i < std::size(wanted); i++) {
    const std::vector<uint32_t> before = block_table(session);
    CHECK(pkv_session_reserve(session, wanted[i]));
    const std::vector<uint32_t> table = block_table(session);
    EXPECT_EQ(held[i], table.size()) << wanted[i] << " tokens";
    EXPECT_TRUE(std::equal(before.begin(), before.end(), table.begin()))
        << "what was held stays where it is";
  }
  EXPECT_EQ(0u, length_of(session));
  REFUSED(PKV_TOO_LARGE, pkv_session_reserve(session, 17 * 16));
  Session other = open(cache, 10 * 16);
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_session_reserve(session, 6 * 16 + 1));
  EXPECT_EQ(6u, block_table(session).size());
  CHECK(pkv_cache_validate(cache));
}

TEST(BlockTable, AStepThatIsShortOfBlocksChangesNothing) {
  Cache cache = create(config_of(model, 3, PKV_STORAGE_EXTERNAL));
  Session session = open(cache), other = open(cache);
  grow(cache, session, 20);
  const pkv_session list[] = {other, session};
  const uint32_t counts[] = {10, 20};
  pkv_batch batch = nullptr;
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_batch_begin(cache, 2, list, counts, &batch));
  EXPECT_EQ(1u, pkv_last_error_details()->blocks_short);
  EXPECT_EQ(nullptr, batch);
  EXPECT_EQ(20u, length_of(session));
  EXPECT_EQ(2u, block_table(session).size());
  EXPECT_EQ(0u, block_table(other).size());
  const uint32_t beyond = 29;
  REFUSED(PKV_TOO_LARGE, pkv_batch_begin(cache, 1, &list[1], &beyond, &batch));
  grow(cache, session, 28);
  CHECK(pkv_cache_validate(cache));
}

TEST(BlockTable, TrimAfterSpeculationReturnsTheTrailingBlocks) {
  Cache cache = create(config_of(model, 8));
  Session session = open(cache);
  Random random(8);
  step(cache, session, model, 30, random);
  const std::vector<uint32_t> table = block_table(session);
  const KeysValues kept = materialize(session, 0, model, 0, 30);
  step(cache, session, model, 40, random);  // the draft
  EXPECT_EQ(5u, pool_stats_of(cache).held_blocks);
  CHECK(pkv_session_trim(session, 33));  // three of it are accepted
  EXPECT_EQ(33u, length_of(session));
  EXPECT_EQ(3u, pool_stats_of(cache).held_blocks);
  EXPECT_EQ(33u, stats_of(cache).filled_slots);
  CHECK(pkv_session_trim(session, 30));
  EXPECT_EQ(table, block_table(session));
  EXPECT_TRUE(kept == materialize(session, 0, model, 0, 30));
  CHECK(pkv_session_trim(session, 16));
  EXPECT_EQ(1u, block_table(session).size());
  CHECK(pkv_session_trim(session, 0));
  EXPECT_EQ(8u, pool_stats_of(cache).free_blocks);
  REFUSED(PKV_OUT_OF_RANGE, pkv_session_trim(session, 1));
  CHECK(pkv_cache_validate(cache));
}

TEST(BlockTable, ClosingSomeSessionsFreesJustTheirBlocks) {
  Cache cache = create(config_of(model, 20, PKV_STORAGE_EXTERNAL));
  std::vector<Session> requests;
  for (const uint32_t tokens : {100u, 17u, 1u, 64u}) {
    requests.push_back(open(cache, tokens));
    grow(cache, requests.back(), tokens);
  }
  EXPECT_EQ(7u + 2 + 1 + 4, pool_stats_of(cache).held_blocks);
  requests[0].close();
  EXPECT_EQ(7u, pool_stats_of(cache).held_blocks);
  requests.clear();
  EXPECT_EQ(20u, pool_stats_of(cache).free_blocks);
  CHECK(pkv_cache_validate(cache));
}

}  // namespace
}  // namespace cache_test::block_table_test
