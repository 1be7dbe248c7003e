// Closed sessions leave cached blocks. New sessions with the same prefix use them, until their
// memory is needed.
#include <algorithm>
#include <string>

#include "prefix_fixture.h"

namespace cache_test::prefix_test {
namespace {

TEST_F(Prefix, WhatAnEndedSessionComputedIsFoundToTheToken) {
  make(64);
  const Text first = text(1, 50);
  EXPECT_EQ(0u, serve(first));
  // These are three full blocks in each of two groups.
  EXPECT_EQ(6u, stats_of(cache_).evictable_blocks);
  for (const size_t common : {0u, 1u, 15u, 16u, 17u, 31u, 32u, 40u, 47u, 48u}) {
    Session session = open(cache_);
    const Text whole =
        Text(first.begin(), first.begin() + static_cast<int64_t>(common)) + text(2, 20);
    SCOPED_TRACE(common);
    EXPECT_EQ(common, match(session, whole));
    check_content(session, whole);
    extend(session, whole);
    check_content(session, whole);
    // It is trimmed so that it leaves nothing in the cache.
    CHECK(pkv_session_trim(session, common));
    clear();
    session.close();
    clear();
    EXPECT_EQ(0u, serve(first));
  }
}

TEST_F(Prefix, TheAskedTokensAreTheLimit) {
  make(64);
  const Text whole = text(1, 64);
  serve(whole);
  Session session = open(cache_);
  EXPECT_EQ(63u, match(session, Text(whole.begin(), whole.end() - 1)))
      << "the last one is left to be computed";
  check_content(session, whole);
  EXPECT_EQ(4u, block_table(session).size());
  EXPECT_EQ(0u, stats_of(cache_).evictable_blocks) << "the last one is shared, too";
  extend(session, whole);
  check_content(session, whole);
  EXPECT_EQ(8u, pool_stats_of(cache_).held_blocks) << "the copy is full now, and cached already";
}

TEST_F(Prefix, AnAnswerServesTheNextTurn) {
  make(64);
  const Text system = text(1, 40), question = text(2, 12), answer = text(3, 30), next = text(4, 9);
  serve(system + question + answer);
  EXPECT_EQ(80u, serve(system + question + answer + next))
      << "five of the 82 tokens' blocks are full";
  EXPECT_EQ(80u, serve(system + question + answer + text(5, 9)));
  EXPECT_EQ(40u, serve(system + text(6, 50)));
}

TEST_F(Prefix, RunningSessionsShareWhatIsFullAlready) {
  make(64);
  const Text prompt = text(1, 48);
  Session first = open(cache_);
  extend(first, prompt);
  Session second = open(cache_);
  EXPECT_EQ(48u, match(second, prompt + text(2, 5)));
  EXPECT_EQ(block_table(first), block_table(second));
  EXPECT_EQ(6u, pool_stats_of(cache_).held_blocks);
  first.close();
  check_content(second, prompt);
}

TEST_F(Prefix, TwoWhoComputeTheSameEndWithOneCopy) {
  make(64);
  const Text prompt = text(1, 48), other = text(2, 20);
  Session first = open(cache_), second = open(cache_);
  // Both begin before either commits, so that the second one finds nothing.
  Batch batch = begin(cache_, {first}, {48});
  extend(second, prompt);
  batch.close();
  extend(first, prompt);
  EXPECT_EQ(6u, pool_stats_of(cache_).held_blocks);
  EXPECT_EQ(block_table(first), block_table(second));
  extend(first, prompt + other);
  check_content(first, prompt + other);
  check_content(second, prompt);
}

TEST_F(Prefix, BlocksGoLeafFirstWhenTheyAreNeeded) {
  make(8);
  serve(text(1, 64));
  EXPECT_EQ(8u, stats_of(cache_).evictable_blocks);
  EXPECT_EQ(4u * 2, pool_stats_of(cache_).free_blocks);
  Session session = open(cache_);
  CHECK(pkv_session_reserve(session, 16 * 6));  // This is two blocks more than are free.
  EXPECT_EQ(2u, figures().evicted_blocks);
  EXPECT_EQ(2u, figures().evictable_blocks);
  session.close();
  EXPECT_EQ(32u, serve(text(1, 64))) << "the beginning stayed";
  Session all = open(cache_);
  const pkv_session handle = all;
  const uint32_t too_much = 129;
  pkv_batch batch;
  CHECK(pkv_session_reserve(all, 128));
  EXPECT_EQ(0u, figures().cached_blocks);
  REFUSED(PKV_TOO_LARGE, pkv_batch_begin(cache_, 1, &handle, &too_much, &batch));
}

TEST_F(Prefix, WhatIsInUseIsNeverEvicted) {
  make(8);
  Session holder = open(cache_);
  extend(holder, text(1, 64));
  Session other = open(cache_);
  const pkv_session handle = other;
  const uint32_t five = 80;
  pkv_batch batch;
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_batch_begin(cache_, 1, &handle, &five, &batch));
  EXPECT_STREQ(
      "begin needs 5 blocks in group 0, 4 of 8 are free, 0 evictable (2 short over all groups): "
      "suspend what pkv_batch_choose_victims names, and resume none before this step has begun",
      pkv_last_error());
  EXPECT_EQ(2u, pkv_last_error_details()->blocks_short);
  check_content(holder, text(1, 64));
  Snapshot snapshot = freeze(holder);
  holder.close();
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_batch_begin(cache_, 1, &handle, &five, &batch));
  snapshot.close();
  CHECK(pkv_batch_begin(cache_, 1, &handle, &five, &batch));
  CHECK(pkv_batch_abort(batch));
}

TEST_F(Prefix, LeastRecentlyUsed) {
  make(8, PKV_STORAGE_INTERNAL, PKV_EVICTION_LRU);
  for (int i = 0; i < 4; i++) serve(text(1, 33));
  serve(text(2, 33));
  serve(text(3, 33));
  // Nine blocks of eight are needed in all, so one of an older text is evicted.
  serve(text(4, 65));
  Session session = open(cache_);
  EXPECT_EQ(0u, match(session, text(1, 33)));
}

// A probe returns what a match would find, but does not use it: the order of eviction and the
// statistics do not change.
TEST_F(Prefix, AProbeFindsWithoutUsing) {
  make(8);
  const auto probe = [&](const Text& of) {
    uint64_t cached = 0;
    CHECK(pkv_prefix_probe(cache_, TextArg(of), &cached));
    return cached;
  };
  EXPECT_EQ(0u, probe(text(1, 33)));
  for (const int32_t name : {1, 2, 3}) serve(text(name, 33));
  const PrefixStats before = figures();
  for (int i = 0; i < 3; i++) EXPECT_EQ(32u, probe(text(1, 33) + text(9, 20)));
  EXPECT_EQ(16u, probe(text(2, 31))) << "whole blocks";
  EXPECT_EQ(0u, probe(text(5, 40)));
  EXPECT_EQ(0u, probe({}));
  const PrefixStats after = figures();
  EXPECT_EQ(0, std::memcmp(&before, &after, sizeof before));
  serve(text(4, 65));
  EXPECT_EQ(0u, probe(text(1, 33))) << "the one that was used for longest ago has gone";
  EXPECT_EQ(32u, probe(text(3, 33)));
  make(8, PKV_STORAGE_INTERNAL, PKV_EVICTION_LRU, 20);
  serve(text(1, 70));
  Session session = open(cache_);
  const uint64_t found = probe(text(1, 70));
  EXPECT_EQ(found, match(session, text(1, 70)) / 16 * 16) << "with a window group";
}

TEST_F(Prefix, SaltsShareNothingAndSeeNothing) {
  make(64);
  const Text prompt = text(1, 64);
  EXPECT_EQ(0u, serve(prompt, "alice"));
  EXPECT_EQ(0u, serve(prompt, "bob"));
  EXPECT_EQ(0u, serve(prompt));
  EXPECT_EQ(0u, serve(prompt, std::string("al\0ice", 6)));
  EXPECT_EQ(64u, serve(prompt, "alice"));
  EXPECT_EQ(2u, figures("alice").lookups);
  EXPECT_EQ(64u, figures("alice").matched_tokens);
  EXPECT_EQ(4u, figures("bob").cached_blocks);
  EXPECT_EQ(0u, figures("bob").matched_tokens);
  EXPECT_EQ(0u, figures("carol").lookups);
  EXPECT_EQ(16u, figures().cached_blocks);
  CHECK(pkv_prefix_clear(cache_, "alice", 5));
  EXPECT_EQ(12u, figures().cached_blocks);
  EXPECT_EQ(64u, serve(prompt, "bob"));
  EXPECT_EQ(0u, serve(prompt, "alice"));
}

TEST_F(Prefix, SessionsMayKeepOut) {
  make(64);
  const Text prompt = text(1, 64);
  {
    Session session = open_salted("", PKV_PREFIX_OFF);
    extend(session, prompt);
  }
  EXPECT_EQ(0u, figures().cached_blocks);
  serve(prompt);
  {
    Session reader = open_salted("", PKV_PREFIX_MATCH);
    EXPECT_EQ(64u, match(reader, prompt));
    extend(reader, prompt + text(2, 32));
  }
  EXPECT_EQ(4u, figures().cached_blocks);
  Session session = open_salted("", PKV_PREFIX_OFF);
  EXPECT_EQ(0u, match(session, prompt));
}

TEST_F(Prefix, AForkAndATrimGoTheirOwnWays) {
  make(64);
  const Text prompt = text(1, 64);
  Session session = open(cache_);
  extend(session, prompt);
  Session child = fork(session);
  CHECK(pkv_session_trim(session, 40));
  const Text other = Text(prompt.begin(), prompt.begin() + 40) + text(2, 30);
  extend(session, other);
  extend(child, prompt + text(3, 30));
  check_content(session, other);
  check_content(child, prompt + text(3, 30));
  session.close();
  child.close();
  EXPECT_EQ(64u, serve(other)) << "of 70 tokens";
  EXPECT_EQ(80u, serve(prompt + text(3, 30)));
  clear();
  EXPECT_EQ(128u, pool_stats_of(cache_).free_blocks);
}

TEST_F(Prefix, AResumeFindsWhatIsStillThere) {
  make(16);
  const Text prompt = text(1, 100);
  Session session = open(cache_);
  extend(session, prompt);
  CHECK(pkv_session_suspend(session));
  EXPECT_EQ(12u, stats_of(cache_).evictable_blocks);
  uint64_t length = 0, total = 0;
  CHECK(pkv_session_resume(session, &length, &total));
  EXPECT_EQ(96u, length);
  EXPECT_EQ(100u, total);
  extend(session, prompt);
  check_content(session, prompt);
  CHECK(pkv_session_suspend(session));
  {
    Session other = open(cache_);
    // Ten blocks are free, so four of the tail are evicted.
    CHECK(pkv_session_reserve(other, 16 * 14));
    REFUSED(PKV_OUT_OF_BLOCKS, pkv_session_resume(session, &length, &total));
    EXPECT_EQ(2u * (7 - 2), pkv_last_error_details()->blocks_short) << "two blocks of it are left";
    CHECK(pkv_cache_validate(cache_));
  }
  CHECK(pkv_session_resume(session, &length, &total));
  EXPECT_EQ(32u, length);
  extend(session, prompt);
  check_content(session, prompt);
}

TEST_F(Prefix, TokensThatAreToldLateAreFoundLate) {
  make(64);
  const Text prompt = text(1, 64);
  Session session = open(cache_);
  Batch batch = begin(cache_, {session}, {64});
  Rows zero(64, model_.kv_heads, model_.key_dim);
  for (uint32_t layer = 0; layer < 2; layer++) write(batch, layer, zero, zero);
  commit(batch);  // No token ids are given.
  EXPECT_EQ(0u, figures().cached_blocks);
  CHECK(pkv_session_set_tokens(session, 0, 40, prompt.data()));
  EXPECT_EQ(2u, figures().cached_blocks);
  CHECK(pkv_session_set_tokens(session, 40, 24, prompt.data() + 40));
  EXPECT_EQ(4u, figures().cached_blocks);
}

TEST_F(Prefix, AWindowGroupNeedsItsLastWindow) {
  make(64, PKV_STORAGE_INTERNAL, PKV_EVICTION_LRU, 32);
  const Text system = text(1, 96), first = system + text(2, 64);
  serve(first);
  EXPECT_EQ(10u + 10, stats_of(cache_).evictable_blocks);
  Session session = open(cache_);
  EXPECT_EQ(160u, match(session, first));
  check_content(session, first, 128);
  session.close();
  const Text second = system + text(3, 64);
  EXPECT_EQ(96u, serve(second));
  EXPECT_EQ(64u, serve(Text(first.begin(), first.begin() + 64) + text(4, 10))) << "a shorter one";
}

TEST_F(Prefix, MetricsSayWhatHappened) {
  make(64);
  serve(text(1, 50));
  serve(text(1, 50));
  Session session = open(cache_);
  extend(session, text(2, 20));
  size_t size = 0;
  REFUSED(PKV_BUFFER_TOO_SMALL, pkv_cache_format_metrics(cache_, 0, nullptr, &size));
  std::string metrics(size, '?');
  CHECK(pkv_cache_format_metrics(cache_, size, metrics.data(), &size));
  EXPECT_EQ('\0', metrics.back());
  for (const char* line :
       {"\npagedkv_blocks{group=\"1\",state=\"free\"} 59\n",
        "\npagedkv_blocks{group=\"0\",state=\"evictable\"} 3\n",
        "\npagedkv_blocks{group=\"0\",state=\"in_use\"} 2\n",
        "\npagedkv_open{kind=\"session\"} 1\n", "\npagedkv_tokens_total 72\n",
        "\npagedkv_prefix_tokens_total{result=\"asked\"} 100\n",
        "\npagedkv_prefix_tokens_total{result=\"matched\"} 48\n",
        "\npagedkv_prefix_changed_tokens_total{event=\"published\"} 64\n",
        "\npagedkv_prefix_cached_tokens 64\n", "\n# TYPE pagedkv_steps_total counter\n"})
    EXPECT_NE(std::string::npos, metrics.find(line)) << line << metrics;
}

// The engine makes the copy of the block that matches in part.
TEST_F(Prefix, IdsAloneMatchToTheToken) {
  make(64, PKV_STORAGE_EXTERNAL);
  const Text prompt = text(1, 50);
  Session session = open(cache_);
  Batch batch = begin(cache_, {session}, {50});
  commit(batch, prompt);
  const std::vector<uint32_t> table = block_table(session);
  session.close();
  Session again = open(cache_);
  EXPECT_EQ(45u, match(again, Text(prompt.begin(), prompt.begin() + 45)));
  EXPECT_EQ(std::vector<uint32_t>(table.begin(), table.begin() + 3), block_table(again));
  {
    const Batch step = begin(cache_, {again}, {1});
    uint32_t from = 0, to = 0;
    size_t copies = 0;
    CHECK(pkv_batch_get_block_copies(step, 0, 1, &from, &to, &copies));
    EXPECT_EQ(1u, copies);
    EXPECT_EQ(table[2], from);
    EXPECT_EQ(to, block_table(again)[2]);
    EXPECT_NE(from, to);
  }
  EXPECT_EQ(table[2], block_table(again)[2]) << "the step was aborted";
}

TEST_F(Prefix, MatchComesBeforeAnythingElse) {
  make(8);
  Session session = open(cache_, 16);
  const Text prompt = text(1, 20);
  uint64_t matched = 7;
  REFUSED(PKV_INVALID_ARGUMENT, pkv_session_admit(session, 20, prompt.data(), 0, &matched));
  CHECK(pkv_session_trim(session, 0));
  const Text unknown = {1, 2, PKV_UNKNOWN_TOKEN};
  REFUSED(PKV_INVALID_ARGUMENT, pkv_session_admit(session, 3, unknown.data(), 0, &matched));
  extend(session, prompt);
  REFUSED(PKV_INVALID_ARGUMENT, pkv_session_admit(session, 20, prompt.data(), 0, &matched));
  CHECK(pkv_session_suspend(session));
  REFUSED(PKV_SUSPENDED, pkv_session_admit(session, 20, prompt.data(), 0, &matched));
  EXPECT_EQ(7u, matched);
}

TEST(PrefixConfig, CallsNeedAnIndex) {
  Cache without = create(config_of({1, 1, 1, 16}, 8));
  auto stats = made<pkv_prefix_stats>();
  REFUSED(PKV_UNSUPPORTED, pkv_prefix_get_stats(without, nullptr, 0, &stats));
  REFUSED(PKV_UNSUPPORTED, pkv_prefix_clear(without, nullptr, 0));
}

}  // namespace
}  // namespace cache_test::prefix_test
