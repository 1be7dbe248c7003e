// Sessions that forget blocks in the middle: nothing of it comes to other sessions. (Attention of
// such a session is compared with textbook attention in attention_test.cpp.)
#include <gtest/gtest.h>

#include "../store/support.h"

namespace cache_test::dropped_blocks_test {
namespace {

constexpr uint32_t block_size = 16;

void drop(pkv_session session, const std::vector<uint32_t>& blocks, uint32_t group = 0) {
  CHECK(pkv_session_drop_blocks(session, group, blocks.size(), blocks.data()));
}

TEST(DroppedBlocks, GivesTheirMemoryBackAndAnswersOfThem) {
  const Model model;
  const Cache cache = create(config_of(model, 8));
  Session session = open(cache);
  Random random(1);
  step(cache, session, model, 100, random);
  EXPECT_EQ(1u, pool_stats_of(cache).free_blocks);
  drop(session, {0, 2, 3});
  EXPECT_EQ(4u, pool_stats_of(cache).free_blocks);
  EXPECT_EQ(4u, info_of(session).blocks);
  EXPECT_EQ(100u, length_of(session));
  std::vector<uint32_t> table = block_table(session);
  for (const size_t i : {0, 2, 3}) EXPECT_EQ(PKV_NO_BLOCK_ID, table[i]);
  const std::vector<int64_t> slots = kv_indices(cache, session);
  ASSERT_EQ(100u - 3 * block_size, slots.size());
  EXPECT_EQ(int64_t{table[1]} * block_size, slots[0]);
  Rows k(32, 1, 16);
  const pkv_tensor keys = k.tensor();
  REFUSED(PKV_OUT_OF_RANGE, pkv_session_read(session, 0, 16, 32, &keys, nullptr));
  CHECK(pkv_session_read(session, 0, 64, 32, &keys, nullptr));
  // A session may be longer than the pool, if what it holds is not.
  step(cache, session, model, 64, random);
  EXPECT_EQ(164u, length_of(session));
  CHECK(pkv_cache_validate(cache));
}

TEST(DroppedBlocks, AreNotReadByABatch) {
  const Model model;
  const Cache cache = create(config_of(model, 16));
  Session session = open(cache);
  Random random(1);
  step(cache, session, model, 100, random);
  drop(session, {1, 4});
  Batch batch = begin(cache, {session}, {1});
  uint32_t indptr[2], blocks[8], slots[128], last = 0;
  size_t count = 0;
  CHECK(pkv_batch_get_kv_indices(batch, 0, PKV_INDEX_BLOCKS, indptr, 8, blocks, &count, &last));
  EXPECT_EQ(5u, count);
  EXPECT_EQ(101 - 96u, last);
  CHECK(pkv_batch_get_kv_indices(batch, 0, PKV_INDEX_SLOTS, indptr, 128, slots, &count, nullptr));
  EXPECT_EQ(101u - 2 * block_size, count);
}

TEST(DroppedBlocks, LimitWhereATrimCanEnd) {
  const Model model;
  const Cache cache = create(config_of(model, 16));
  Session session = open(cache);
  Random random(1);
  step(cache, session, model, 100, random);
  drop(session, {2, 3});
  uint64_t length = 0;
  CHECK(pkv_session_get_trim_point(session, 60, &length));
  EXPECT_EQ(48u, length);
  REFUSED(PKV_OUT_OF_RANGE, pkv_session_trim(session, 60));
  CHECK(pkv_session_trim(session, 70));
  CHECK(pkv_session_trim(session, length));
  CHECK(pkv_cache_validate(cache));
  step(cache, session, model, 20, random);
  CHECK(pkv_session_trim(session, 32));
  materialize(session, 0, model, 0, 32);
  CHECK(pkv_cache_validate(cache));
}

TEST(DroppedBlocks, RefusesWhatIsNoFullBlock) {
  const Model model;
  const Cache cache = create(config_of(model, 16));
  Session session = open(cache);
  Random random(1);
  step(cache, session, model, 40, random);
  const uint32_t beyond = 2, falling[] = {1, 0};
  REFUSED(PKV_OUT_OF_RANGE, pkv_session_drop_blocks(session, 0, 1, &beyond));
  REFUSED(PKV_INVALID_ARGUMENT, pkv_session_drop_blocks(session, 0, 2, falling));
  REFUSED(PKV_OUT_OF_RANGE, pkv_session_drop_blocks(session, 1, 1, falling));
  EXPECT_EQ(3u, info_of(session).blocks);
  drop(session, {0, 1});
  drop(session, {0, 1});
  EXPECT_EQ(1u, info_of(session).blocks);
  Session whole = open(cache);
  step(cache, whole, model, 40, random);
  {
    const Batch batch = begin(cache, {whole}, {1});
    REFUSED(PKV_BUSY, pkv_session_drop_blocks(whole, 0, 1, falling));
  }
  CHECK(pkv_session_suspend(whole));
  REFUSED(PKV_SUSPENDED, pkv_session_drop_blocks(whole, 0, 1, falling));
}

class DroppedBlocksOfTheIndex : public testing::Test {
 protected:
  DroppedBlocksOfTheIndex() {
    auto prefix = made<pkv_prefix_config>();
    ModelConfig config = config_of(model_, 64);
    config.prefix = &prefix;
    cache_ = create(config);
    for (int32_t i = 0; i < 128; i++) text_.push_back(i);
  }

  Session talk(uint32_t tokens) {
    Session session = open(cache_);
    add(session, 0, tokens);
    return session;
  }
  void add(pkv_session session, uint32_t first, uint32_t tokens) {
    Batch batch = begin(cache_, {session}, {tokens});
    KeysValues rows = random_rows(model_, tokens, random_);
    write(batch, 0, model_, rows);
    commit(batch, std::span(text_).subspan(first, tokens));
  }
  uint64_t matched(uint32_t tokens) {
    Session session = open(cache_);
    uint64_t found = 0;
    CHECK(pkv_session_admit(session, tokens, text_.data(), 0, &found));
    return found;
  }

  const Model model_;
  Cache cache_;
  Random random_{2};
  std::vector<int32_t> text_;
};

TEST_F(DroppedBlocksOfTheIndex, AreTakenFromItWhereNobodyElseUsesThem) {
  Session session = talk(96);
  drop(session, {2, 3});
  CHECK(pkv_cache_validate(cache_));
  EXPECT_EQ(64u - 4, pool_stats_of(cache_).free_blocks);
  add(session, 96, 32);
  EXPECT_EQ(32u, matched(128));
  CHECK(pkv_session_suspend(session));
  uint64_t length = 0, total = 0;
  CHECK(pkv_session_resume(session, &length, &total));
  EXPECT_EQ(32u, length);
  EXPECT_EQ(128u, total);
  CHECK(pkv_cache_validate(cache_));
}

TEST_F(DroppedBlocksOfTheIndex, StayInItForOthers) {
  Session session = talk(96);
  const Session other = fork(session);
  drop(session, {1});
  CHECK(pkv_cache_validate(cache_));
  EXPECT_EQ(96u, matched(128));
  add(session, 96, 32);
  EXPECT_EQ(96u, matched(128));
  session.close();
  EXPECT_EQ(96u, matched(128));
  CHECK(pkv_cache_validate(cache_));
}

TEST_F(DroppedBlocksOfTheIndex, ArePublishedAgainOnceTheyAreComputedAgain) {
  Session session = talk(96);
  drop(session, {2});
  CHECK(pkv_session_trim(session, 32));
  add(session, 32, 96);
  EXPECT_EQ(128u, matched(128));
  CHECK(pkv_cache_validate(cache_));
}

TEST(DroppedBlocksInFiles, ComeBackAsTheyWere) {
  const Model model;
  for (const uint32_t size : {16u, 32u}) {
    ModelConfig config = config_of(model, 64);
    config.block_size = size;
    const Cache cache = create(config);
    Session whole = open(cache);
    Random random(3);
    step(cache, whole, model, 150, random);
    Session session = fork(whole);
    drop(session, {0, 2});
    step(cache, session, model, 10, random);
    const std::vector<unsigned char> file = store::save(cache, {session, whole});
    const Cache other = create(config_of(model, 64));  // blocks of 16
    const auto loaded = store::load(other, file);
    ASSERT_EQ(2u, loaded.size());
    CHECK(pkv_cache_validate(other));
    EXPECT_EQ(length_of(session), length_of(loaded[0]));
    EXPECT_EQ(materialize(whole, 0, model, 0, 150), materialize(loaded[1], 0, model, 0, 150));
    EXPECT_EQ(materialize(session, 0, model, size, size),
              materialize(loaded[0], 0, model, size, size));
    const std::vector<uint32_t> table = block_table(loaded[0]);
    for (size_t i = 0; i < table.size(); i++)
      EXPECT_EQ(i * 16 / size == 0 || i * 16 / size == 2, table[i] == PKV_NO_BLOCK_ID) << i;
    if (size == 32) continue;
    config.block_size = 32;
    const Cache large = create(config);
    EXPECT_EQ(PKV_MISMATCH, store::try_load(large, store::buffer(file))) << pkv_last_error();
  }
}

}  // namespace
}  // namespace cache_test::dropped_blocks_test
