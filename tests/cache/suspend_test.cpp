// Preemption: sessions are suspended and resumed, and blocks up to a watermark stay free.
#include <algorithm>

#include "../support/cache.h"
#include "../support/rows.h"

namespace cache_test::suspend_test {
namespace {

const Model model{2, 4, 2, 32};

// Resumes a session. Returns the positions [length, total) that must be computed again.
std::pair<uint64_t, uint64_t> resume(pkv_session session) {
  uint64_t length = 99, total = 99;
  CHECK(pkv_session_resume(session, &length, &total));
  return {length, total};
}

// The rows of a text in every layer. A token's rows follow from its position.
struct Text {
  explicit Text(uint32_t n) : tokens(n) {
    Random random(n);
    for (uint32_t layer = 0; layer < model.layers; layer++) {
      rows.push_back(random_rows(model, n, random));
    }
    for (uint32_t i = 0; i < n; i++) tokens[i] = static_cast<int32_t>(1000 + i);
  }

  // Feeds the next n tokens to a session that holds the beginning of the text. Returns the outputs
  // of the last layer.
  Rows step(pkv_cache cache, pkv_session session, uint32_t n, bool tell = true) {
    const uint64_t first = length_of(session);
    Batch batch = begin(cache, {session}, {n});
    Rows q(n, model.query_heads, model.key_dim), out(q);
    Random random(first);
    for (uint32_t layer = 0; layer < model.layers; layer++) {
      Rows k = rows[layer].k.slice(first, n), v = rows[layer].v.slice(first, n);
      write(batch, layer, k, v);
      attend(batch, layer, q.fill(random), out);
    }
    commit(batch, std::span(tokens).subspan(first, tell ? n : 0));
    return out;
  }

  std::vector<KeysValues> rows;
  std::vector<int32_t> tokens;
};

class Suspend : public testing::TestWithParam<pkv_layout> {
 protected:
  Cache cache(uint64_t blocks, uint32_t watermark = 0) const {
    ModelConfig config = config_of(model, blocks);
    config.layout = GetParam();
    config.watermark_blocks = watermark;
    return create(config);
  }
};
INSTANTIATE_TEST_SUITE_P(Layouts, Suspend, testing::Values(PKV_LAYOUT_PACKED, PKV_LAYOUT_PLAIN),
                         [](const auto& test) {
                           return test.param == PKV_LAYOUT_PACKED ? "packed" : "plain";
                         });

TEST_P(Suspend, BlocksGoAndTokensStay) {
  Cache cache = this->cache(8);
  Session session = open(cache);
  Text text(40);
  const uint64_t slab = stats_of(cache).mapped_bytes;
  text.step(cache, session, 40);
  EXPECT_EQ(3u, info_of(session).exclusive_blocks);
  CHECK(pkv_session_suspend(session));
  CHECK(pkv_session_suspend(session));  // A second call is OK, too.
  EXPECT_EQ(8u, pool_stats_of(cache).free_blocks);
  EXPECT_EQ(slab, stats_of(cache).mapped_bytes);
  EXPECT_EQ(1u, stats_of(cache).suspended_sessions);
  EXPECT_EQ(1u, stats_of(cache).suspensions);
  EXPECT_EQ(0u, stats_of(cache).tokens);
  EXPECT_EQ(0u, length_of(session));
  EXPECT_EQ(text.tokens, tokens_of(session, 40));
  const pkv_session_info info = info_of(session);
  EXPECT_EQ(1u, info.suspended);
  EXPECT_EQ(40u, info.total);
  EXPECT_EQ(0u, info.blocks);
  CHECK(pkv_cache_validate(cache));
  session.close();
  EXPECT_EQ(0u, stats_of(cache).suspended_sessions);
}

TEST_P(Suspend, ComputedAgainItAttendsToTheSameBits) {
  Cache cache = this->cache(16);
  Session session = open(cache), twin = open(cache), other = open(cache);
  Text text(60);
  for (const pkv_session each : {session.get(), twin.get()}) {
    text.step(cache, each, 33);
    text.step(cache, each, 7);
  }
  CHECK(pkv_session_suspend(session));
  text.step(cache, other, 60);  // This takes the blocks that were given back.
  other.close();
  EXPECT_EQ(std::pair(uint64_t{0}, uint64_t{40}), resume(session));
  text.step(cache, session, 25, false);
  EXPECT_EQ(std::pair(uint64_t{25}, uint64_t{40}), resume(session))
      << "a session that is not suspended says the same";
  text.step(cache, session, 15, false);
  EXPECT_EQ(std::pair(uint64_t{40}, uint64_t{40}), resume(session));
  EXPECT_EQ(text.tokens, (text.step(cache, session, 20), tokens_of(session, 60)));
  CHECK(pkv_session_trim(session, 40));
  text.step(cache, twin, 1), text.step(cache, session, 1);
  EXPECT_TRUE(text.step(cache, twin, 10) == text.step(cache, session, 10));
  CHECK(pkv_cache_validate(cache));
}

TEST_P(Suspend, WhatWasComputedAgainIsNotLostByASecondSuspension) {
  Cache cache = this->cache(8);
  Session session = open(cache);
  Text text(50);
  text.step(cache, session, 50, false);  // The token ids are not given.
  CHECK(pkv_session_suspend(session));
  resume(session);
  text.step(cache, session, 20, true);  // Now they are given for some tokens.
  CHECK(pkv_session_suspend(session));
  std::vector<int32_t> expected(50, PKV_UNKNOWN_TOKEN);
  std::copy_n(text.tokens.begin(), 20, expected.begin());
  EXPECT_EQ(expected, tokens_of(session, 50));
  EXPECT_EQ(std::pair(uint64_t{0}, uint64_t{50}), resume(session));
  text.step(cache, session, 50, false);
  EXPECT_EQ(expected, tokens_of(session, 50));
}

TEST_P(Suspend, CallsThatWouldAddAreRefused) {
  Cache cache = this->cache(8);
  Session session = open(cache);
  Text text(20);
  text.step(cache, session, 20);
  CHECK(pkv_session_suspend(session));
  pkv_batch batch;
  pkv_session child;
  pkv_snapshot snapshot;
  const pkv_session handle = session;
  const uint32_t one = 1;
  size_t count;
  REFUSED(PKV_SUSPENDED, pkv_batch_begin(cache, 1, &handle, &one, &batch));
  EXPECT_STREQ("begin: the session is suspended, with 20 tokens to compute again",
               pkv_last_error());
  REFUSED(PKV_SUSPENDED, pkv_session_fork(session, &child));
  REFUSED(PKV_SUSPENDED, pkv_snapshot_take(session, &snapshot));
  REFUSED(PKV_SUSPENDED, pkv_session_reserve(session, 10));
  REFUSED(PKV_SUSPENDED, pkv_batch_choose_victims(cache, 1, &handle, &one, 0, nullptr, &count));
  EXPECT_EQ(text.tokens, tokens_of(session, 20));
  EXPECT_EQ(8u, pool_stats_of(cache).free_blocks);

  CHECK(pkv_session_trim(session, 0));  // This forgets the suspended text.
  EXPECT_EQ(0u, info_of(session).total);
  EXPECT_EQ(0u, stats_of(cache).suspended_sessions);
  text.step(cache, session, 20);
  CHECK(pkv_session_suspend(session));
  CHECK(pkv_session_trim(session, 0));
  Random random(1);
  step(cache, session, model, 1, random);
  EXPECT_EQ(1u, info_of(session).total);
  EXPECT_EQ(0u, info_of(session).suspended);
}

TEST_P(Suspend, ResumeTakesAllItsBlocksOrNone) {
  Cache cache = this->cache(8);
  Session session = open(cache), other = open(cache);
  Text text(100);
  text.step(cache, session, 70);
  CHECK(pkv_session_suspend(session));
  text.step(cache, other, 81);  // This takes 6 of 8 blocks, and 5 are needed.
  uint64_t length = 7, total = 7;
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_session_resume(session, &length, &total));
  EXPECT_EQ(3u, pkv_last_error_details()->blocks_short);
  EXPECT_EQ(7u, length);
  EXPECT_EQ(1u, info_of(session).suspended);
  EXPECT_EQ(2u, pool_stats_of(cache).free_blocks);
  other.close();
  resume(session);
  Session greedy = open(cache);
  text.step(cache, greedy, 48);  // This takes all that is left.
  EXPECT_EQ(0u, pool_stats_of(cache).free_blocks);
  for (uint32_t i = 0; i < 70; i += 10) text.step(cache, session, 10, false);
  EXPECT_EQ(70u, length_of(session));
}

TEST_P(Suspend, OtherTokensThanBeforeAreRefused) {
  Cache cache = this->cache(8);
  Session session = open(cache);
  Text text(30);
  text.step(cache, session, 20);
  CHECK(pkv_session_suspend(session));
  resume(session);
  // An engine forgot to compute the text again and decodes its next token.
  Batch batch = begin(cache, {session}, {1});
  for (uint32_t layer = 0; layer < model.layers; layer++) {
    Rows k = text.rows[layer].k.slice(20, 1), v = text.rows[layer].v.slice(20, 1);
    write(batch, layer, k, v);
  }
  REFUSED(PKV_INVALID_ARGUMENT, pkv_batch_commit(batch, 1, &text.tokens[20]));
  EXPECT_STREQ("commit: position 0 of session 0 held token 1000 before it was suspended, not 1020",
               pkv_last_error());
  batch.close();
  EXPECT_EQ(text.tokens[19], tokens_of(session, 20)[19]);
  CHECK(pkv_session_trim(session, 0));  // The text is replaced on purpose.
  batch = begin(cache, {session}, {1});
  for (uint32_t layer = 0; layer < model.layers; layer++) {
    Rows k = text.rows[layer].k.slice(20, 1), v = text.rows[layer].v.slice(20, 1);
    write(batch, layer, k, v);
  }
  commit(batch, std::span(text.tokens).subspan(20, 1));
}

TEST_P(Suspend, AStepInFlightIsBusy) {
  Cache cache = this->cache(8);
  Session session = open(cache);
  Text text(20);
  text.step(cache, session, 16);
  Batch batch = begin(cache, {session}, {1});
  uint64_t length, total;
  REFUSED(PKV_BUSY, pkv_session_suspend(session));
  REFUSED(PKV_BUSY, pkv_session_resume(session, &length, &total));
  batch.close();
  CHECK(pkv_session_suspend(session));
  EXPECT_EQ(8u, pool_stats_of(cache).free_blocks);
  EXPECT_EQ(std::pair(uint64_t{0}, uint64_t{16}), resume(session));
}

TEST(SuspendShared, OthersKeepTheSharedBlocks) {
  Cache cache = create(config_of(model, 8));
  Session session = open(cache);
  Text text(40);
  text.step(cache, session, 40);
  Session child = fork(session);
  text.step(cache, session, 0);
  EXPECT_EQ(0u, info_of(session).exclusive_blocks);
  CHECK(pkv_session_suspend(session));
  EXPECT_EQ(5u, pool_stats_of(cache).free_blocks);
  EXPECT_EQ(3u, info_of(child).exclusive_blocks);
  EXPECT_TRUE(text.rows[1].k.slice(0, 40) == materialize(child, 1, model, 0, 40).k);
}

TEST(SuspendWindow, AResumeNeedsOneWindow) {
  const Model windowed{1, 1, 1, 16, 0, PKV_F32, 32};
  Cache cache = create(config_of(windowed, 5));  // The cache has 80 slots for a text of 200 tokens.
  Session session = open(cache);
  Random random(1);
  for (int i = 0; i < 20; i++) step(cache, session, windowed, 10, random);
  CHECK(pkv_session_suspend(session));
  EXPECT_EQ(5u, pool_stats_of(cache).free_blocks);
  EXPECT_EQ(std::pair(uint64_t{0}, uint64_t{200}), resume(session));
  EXPECT_EQ(3u, pool_stats_of(cache).free_blocks);
  for (int i = 0; i < 20; i++) step(cache, session, windowed, 10, random);
  EXPECT_EQ(200u, length_of(session));
  CHECK(pkv_cache_validate(cache));
}

// ---- The watermark ----

TEST_P(Suspend, WhoBeginsLeavesTheWatermark) {
  Cache cache = this->cache(8, 3);
  Session running = open(cache), fresh = open(cache);
  Text text(200);
  text.step(cache, running, 40);  // This takes 3 blocks, so 5 are free.
  const pkv_session handle = fresh;
  pkv_batch batch;
  uint64_t length, total;
  const uint32_t two_blocks = 32, three_blocks = 33, too_much = 81;
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_batch_begin(cache, 1, &handle, &three_blocks, &batch));
  EXPECT_EQ(1u, pkv_last_error_details()->blocks_short);
  EXPECT_STREQ(
      "begin needs 3 blocks in group 0, 5 of 8 are free, 3 must stay free (watermark) (1 short "
      "over all groups): suspend what pkv_batch_choose_victims names, and resume none before this "
      "step has begun",
      pkv_last_error());
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_session_reserve(fresh, three_blocks));
  REFUSED(PKV_TOO_LARGE, pkv_batch_begin(cache, 1, &handle, &too_much, &batch));
  EXPECT_STREQ("begin needs 6 blocks in group 0, which has 5 besides the watermark",
               pkv_last_error());
  // The cache has blocks for both, but not beside the three that stay free.
  const pkv_session both[] = {running, fresh};
  const uint32_t four_and_two[] = {64, 32};
  REFUSED(PKV_BATCH_TOO_LARGE, pkv_batch_begin(cache, 2, both, four_and_two, &batch));
  EXPECT_STREQ(
      "begin: 2 sessions need 6 blocks of group 0 at once, which can give 5: begin fewer at a time",
      pkv_last_error());
  CHECK(pkv_batch_begin(cache, 1, &handle, &two_blocks, &batch));
  CHECK(pkv_batch_abort(batch));
  text.step(cache, running, 88);  // This takes every block.
  EXPECT_EQ(0u, pool_stats_of(cache).free_blocks);
  CHECK(pkv_session_suspend(running));
  REFUSED(PKV_TOO_LARGE, pkv_session_resume(running, &length, &total));
}

TEST(SuspendConfig, AWatermarkLeavesSomething) {
  ModelConfig config = config_of(model, 8);
  config.watermark_blocks = 8;
  pkv_cache cache;
  REFUSED(PKV_INVALID_ARGUMENT, pkv_cache_create(&config, &cache));
  EXPECT_STREQ("watermark_blocks is 8; group 0 has 8 in all", pkv_last_error());
}

}  // namespace
}  // namespace cache_test::suspend_test
