// What each hint does to texts and sessions, what came of it, and that it ends in time.
#include "../support/hints.h"
#include "../support/memory_store.h"
#include "prefix_fixture.h"

namespace cache_test::hint_test {
namespace {

class HintTest : public Prefix {
 protected:
  void make(uint64_t blocks, uint64_t max_pinned = 0, uint64_t quota = 0) {
    Prefix::make(blocks, made<pkv_prefix_config>({.eviction = PKV_EVICTION_LRU,
                                                  .max_pinned_tokens = 16 * max_pinned,
                                                  .max_tokens_per_salt = 16 * quota}));
  }
  void set_time(uint64_t ms) { clock_.set(ms); }
  void press(uint64_t blocks) {
    Session session = open(cache_);
    CHECK(pkv_session_reserve(session, blocks * 16));
  }
  uint64_t probe(const Text& tokens, const std::string& salt = "") {
    uint64_t cached = 99;
    CHECK(pkv_prefix_probe(cache_, TextArg(tokens, salt), &cached));
    return cached;
  }
  void expect(pkv_hint_outcome outcome, pkv_hint_reason reason, uint64_t tokens,
              const pkv_hint_result& result) {
    EXPECT_EQ(outcome, result.outcome);
    EXPECT_EQ(reason, result.reason);
    EXPECT_EQ(tokens, result.tokens);
    CHECK(pkv_cache_validate(cache_));
  }
  void expect_done(uint64_t tokens, const pkv_hint_result& result) {
    expect(PKV_HINT_OUTCOME_DONE, PKV_HINT_REASON_NONE, tokens, result);
  }
};

TEST_F(HintTest, ARetentionOfATextMayGoUpAndDown) {
  make(8);
  serve(text(1, 32));
  serve(text(2, 32));
  expect_done(
      32, hint(cache_, PKV_HINT_SET_RETENTION, text(2, 40), "", {.retention = PKV_RETENTION_LOW}));
  press(6);
  EXPECT_EQ(0u, probe(text(2, 32))) << "used last, but low";
  EXPECT_EQ(32u, probe(text(1, 32)));
  serve(text(3, 32));
  expect(PKV_HINT_OUTCOME_CLIPPED, PKV_HINT_REASON_NOT_CACHED, 32,
         hint(cache_, PKV_HINT_SET_RETENTION, text(1, 64), "", {.retention = PKV_RETENTION_HIGH}));
  press(6);
  EXPECT_EQ(0u, probe(text(3, 32)));
  EXPECT_EQ(32u, probe(text(1, 32)));
  expect(PKV_HINT_OUTCOME_MISSING, PKV_HINT_REASON_NOT_CACHED, 0,
         hint(cache_, PKV_HINT_SET_RETENTION, text(9, 32)));
  expect(PKV_HINT_OUTCOME_MISSING, PKV_HINT_REASON_NOT_CACHED, 0,
         hint(cache_, PKV_HINT_SET_RETENTION, text(1, 32), "another"));
}

TEST_F(HintTest, ARetentionForATimeEnds) {
  make(8);
  serve(text(1, 32));
  serve(text(2, 32));
  const pkv_hint high{.retention = PKV_RETENTION_HIGH, .duration_ms = 100};
  expect_done(32, hint(cache_, PKV_HINT_SET_RETENTION, text(1, 32), "", high));
  set_time(99);
  press(6);
  EXPECT_EQ(32u, probe(text(1, 32))) << "the oldest text";
  EXPECT_EQ(0u, probe(text(2, 32)));
  serve(text(3, 32));
  set_time(100);
  press(6);
  EXPECT_EQ(0u, probe(text(1, 32)));
  EXPECT_EQ(32u, probe(text(3, 32)));
}

TEST_F(HintTest, ARetentionForATimeIsTheLeast) {
  make(8);
  serve(text(1, 32));
  serve(text(2, 32));
  const auto set_retention = [&](int32_t name, pkv_retention retention, uint64_t duration = 0) {
    expect_done(32, hint(cache_, PKV_HINT_SET_RETENTION, text(name, 32), "",
                         {.retention = retention, .duration_ms = duration}));
  };
  set_retention(2, PKV_RETENTION_LOW);
  set_retention(1, PKV_RETENTION_LOW, 300);
  press(6);
  EXPECT_EQ(32u, probe(text(1, 32))) << "normal still";
  EXPECT_EQ(0u, probe(text(2, 32)));
  set_retention(1, PKV_RETENTION_LOW);
  set_retention(1, PKV_RETENTION_NORMAL, 200);
  set_retention(1, PKV_RETENTION_HIGH, 50);
  for (const uint64_t time : {100u, 199u}) {
    serve(text(2, 32));
    set_time(time);
    press(6);
    EXPECT_EQ(32u, probe(text(1, 32))) << "low only after " << time;
    EXPECT_EQ(0u, probe(text(2, 32)));
  }
  serve(text(2, 32));
  set_time(200);
  press(6);
  EXPECT_EQ(0u, probe(text(1, 32)));
  EXPECT_EQ(32u, probe(text(2, 32)));
}

// A stripped thinking part goes first, then its answer; what comes before it stays.
TEST_F(HintTest, ARangeOfASessionHasARetentionOfItsOwn) {
  make(12);
  const Text whole = text(1, 96);
  {
    Session session = open(cache_);
    extend(session, whole);
    expect_done(
        64, hint(session, PKV_HINT_SET_RETENTION, {.first = 32, .retention = PKV_RETENTION_LOW}));
    const pkv_hint high{.end = 32, .retention = PKV_RETENTION_HIGH, .duration_ms = 50};
    set_time(10);
    expect_done(32, hint(session, PKV_HINT_SET_RETENTION, high));
    set_time(1000);  // the duration begins when the session ends
  }
  serve(text(2, 32));
  set_time(1049);
  press(8);
  EXPECT_EQ(32u, probe(whole));
  EXPECT_EQ(32u, probe(text(2, 32)));
  press(10);
  EXPECT_EQ(32u, probe(whole)) << "used before the other, but high";
  serve(text(2, 32));
  set_time(1050);
  press(10);
  EXPECT_EQ(0u, probe(whole));
}

TEST_F(HintTest, ARetentionOfASuspendedSessionIsAboutWhatItLeft) {
  make(8);
  Session session = open(cache_);
  extend(session, text(1, 32));
  CHECK(pkv_session_suspend(session));
  serve(text(2, 32));
  expect_done(32, hint(session, PKV_HINT_SET_RETENTION, {.retention = PKV_RETENTION_HIGH}));
  press(6);
  EXPECT_EQ(32u, probe(text(1, 32)));
  EXPECT_EQ(0u, probe(text(2, 32)));
  expect_done(32, hint(session, PKV_HINT_PIN));
  expect_done(32, hint(session, PKV_HINT_UNPIN));
  expect_done(32, hint(session, PKV_HINT_DROP));
  EXPECT_EQ(0u, probe(text(1, 32)));
}

// What only the session and the index hold can be freed, unless a pin keeps it.
TEST_F(HintTest, ExclusiveBlocksMayBeCachedButNotPinned) {
  make(8);
  Session session = open(cache_);
  extend(session, text(1, 40));
  EXPECT_EQ(6u, info_of(session).exclusive_blocks) << "the index has four of them";
  expect_done(32, hint(session, PKV_HINT_PIN));
  EXPECT_EQ(2u, info_of(session).exclusive_blocks);
  expect_done(32, hint(session, PKV_HINT_UNPIN));
  {
    Session other = open(cache_);
    uint64_t matched = 0;
    CHECK(pkv_session_admit(other, 32, text(1, 32).data(), 0, &matched));
    EXPECT_EQ(32u, matched);
    EXPECT_EQ(2u, info_of(session).exclusive_blocks);
    EXPECT_EQ(0u, info_of(other).exclusive_blocks);
  }
  EXPECT_EQ(6u, info_of(session).exclusive_blocks);
  CHECK(pkv_session_suspend(session));
  EXPECT_EQ(4u, stats_of(cache_).evictable_blocks);
  EXPECT_EQ(12u, pool_stats_of(cache_).free_blocks);
}

TEST_F(HintTest, ASessionHas64Ranges) {
  make(8);
  Session session = open(cache_);
  for (uint64_t i = 0; i < 64; i++) hint(session, PKV_HINT_SET_RETENTION, {.first = 16 * i});
  hint(session, PKV_HINT_SET_RETENTION, {.first = 1});
  expect(PKV_HINT_OUTCOME_REJECTED, PKV_HINT_REASON_LIMIT, 0,
         hint(session, PKV_HINT_SET_RETENTION, {.first = 1}));
  hint(session, PKV_HINT_SET_RETENTION);
  expect_done(0, hint(session, PKV_HINT_SET_RETENTION, {.first = 1}));
}

TEST_F(HintTest, APinEndsInTime) {
  make(8, 8);
  serve(text(1, 64));
  expect_done(64, hint(cache_, PKV_HINT_PIN, text(1, 70), "", {.duration_ms = 100}));
  expect_done(64, hint(cache_, PKV_HINT_PIN, text(1, 64), "", {.duration_ms = 10}));
  set_time(99);
  clear();
  EXPECT_EQ(64u, probe(text(1, 64)));
  EXPECT_EQ(4u, figures().pinned_blocks);
  set_time(100);
  clear();
  EXPECT_EQ(0u, probe(text(1, 64)));
  expect(PKV_HINT_OUTCOME_MISSING, PKV_HINT_REASON_NONE, 0,
         hint(cache_, PKV_HINT_UNPIN, text(1, 64)));
}

TEST_F(HintTest, PinsAreClipped) {
  make(16, 3);
  serve(text(1, 64));
  expect(PKV_HINT_OUTCOME_CLIPPED, PKV_HINT_REASON_LIMIT, 48,
         hint(cache_, PKV_HINT_PIN, text(1, 64)));
  serve(text(2, 32));
  expect(PKV_HINT_OUTCOME_REJECTED, PKV_HINT_REASON_LIMIT, 0,
         hint(cache_, PKV_HINT_PIN, text(2, 32)));
  expect_done(32, hint(cache_, PKV_HINT_PIN, text(1, 64), "", {.end = 32}));
  make(32, 8, 4);
  serve(text(1, 64));
  expect(PKV_HINT_OUTCOME_CLIPPED, PKV_HINT_REASON_QUOTA, 32,
         hint(cache_, PKV_HINT_PIN, text(1, 64)));
  serve(text(2, 32));
  EXPECT_EQ(32u, probe(text(2, 32))) << "half of the quota is left";
  expect(PKV_HINT_OUTCOME_MISSING, PKV_HINT_REASON_NOT_CACHED, 0,
         hint(cache_, PKV_HINT_PIN, text(3, 64)));
}

// The hint that made a pin ends it, although less was pinned than it asked for.
TEST_F(HintTest, AClippedPinIsEnded) {
  make(16, 3);
  const Text whole = text(1, 64), other = Text(whole.begin(), whole.begin() + 32) + text(2, 48);
  serve(whole);
  expect(PKV_HINT_OUTCOME_CLIPPED, PKV_HINT_REASON_LIMIT, 48, hint(cache_, PKV_HINT_PIN, whole));
  expect_done(32, hint(cache_, PKV_HINT_PIN, whole, "", {.end = 32}));
  expect(PKV_HINT_OUTCOME_MISSING, PKV_HINT_REASON_NONE, 0, hint(cache_, PKV_HINT_UNPIN, other));
  expect(PKV_HINT_OUTCOME_MISSING, PKV_HINT_REASON_NONE, 0,
         hint(cache_, PKV_HINT_UNPIN, whole + text(2, 16)));
  expect_done(48, hint(cache_, PKV_HINT_UNPIN, whole));
  EXPECT_EQ(2u, figures().pinned_blocks);
  expect(PKV_HINT_OUTCOME_MISSING, PKV_HINT_REASON_NONE, 0, hint(cache_, PKV_HINT_UNPIN, whole));
  expect_done(32, hint(cache_, PKV_HINT_UNPIN, whole, "", {.end = 32}));
  EXPECT_EQ(0u, figures().pinned_blocks);
  // Two texts whose pins are clipped to one.
  make(16, 16);
  serve(Text(whole.begin(), whole.begin() + 32));
  for (const Text& each : {whole, other})
    expect(PKV_HINT_OUTCOME_CLIPPED, PKV_HINT_REASON_NOT_CACHED, 32,
           hint(cache_, PKV_HINT_PIN, each));
  serve(whole);
  expect_done(32, hint(cache_, PKV_HINT_UNPIN, whole));
  EXPECT_EQ(0u, figures().pinned_blocks);
}

// Pins yield to a step, the one that ends soonest first, but not in vain.
TEST_F(HintTest, PinsYieldToSteps) {
  make(8, 8);
  for (const int32_t name : {1, 2, 3}) serve(text(name, 32));
  hint(cache_, PKV_HINT_PIN, text(1, 32));
  hint(cache_, PKV_HINT_PIN, text(2, 32), "", {.duration_ms = 100});
  hint(cache_, PKV_HINT_PIN, text(3, 32), "", {.duration_ms = 200});
  Session session = open(cache_);
  REFUSED(PKV_TOO_LARGE, pkv_session_reserve(session, 9 * 16));
  EXPECT_EQ(0u, figures().yielded_pins);
  CHECK(pkv_session_reserve(session, 4 * 16));
  EXPECT_EQ(1u, figures().yielded_pins);
  EXPECT_EQ(0u, probe(text(2, 32)));
  Session other = open(cache_);
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_session_reserve(other, 5 * 16));
  EXPECT_EQ(1u, figures().yielded_pins);
  CHECK(pkv_session_reserve(other, 2 * 16));
  EXPECT_EQ(0u, probe(text(3, 32)));
  EXPECT_EQ(32u, probe(text(1, 32)));
}

// A request that can have its blocks when a session ends waits for that. One that pins alone could
// keep out does not, nor does work that runs.
TEST_F(HintTest, PinsYieldToNoRequestThatCanWait) {
  make(8, 2);
  const Text pinned = text(1, 32);
  const auto pin = [&] {
    serve(pinned);
    expect_done(32, hint(cache_, PKV_HINT_PIN, pinned));
  };
  const auto admit = [&](pkv_session session, uint64_t blocks) {
    uint64_t matched = 99;
    return pkv_session_admit(session, 0, nullptr, blocks * 16, &matched);
  };
  pin();
  Session running = open(cache_);
  extend(running, text(2, 48));
  Session waiting = open(cache_);
  for (const uint64_t blocks : {4, 6}) REFUSED(PKV_OUT_OF_BLOCKS, admit(waiting, blocks));
  REFUSED(PKV_OUT_OF_BLOCKS, admit(waiting, 7)) << "nor does a pin end in vain";
  EXPECT_EQ(0u, figures().yielded_pins);
  running.close();
  CHECK(admit(waiting, 6));
  EXPECT_EQ(0u, figures().yielded_pins);
  waiting.close();
  waiting = open(cache_);
  CHECK(admit(waiting, 7));
  EXPECT_EQ(1u, figures().yielded_pins);
  waiting.close();

  pin();
  running = open(cache_);
  extend(running, text(2, 48));
  CHECK(pkv_session_suspend(running));
  const Session other = open(cache_, 5 * 16);
  uint64_t length = 0, total = 0;
  CHECK(pkv_session_resume(running, &length, &total));
  EXPECT_EQ(2u, figures().yielded_pins);
}

// Pins keep little of a group with a window, so a request need not end one although the group has
// fewer blocks than can be pinned.
TEST_F(HintTest, PinsYieldToNoRequestThatFitsBesideThem) {
  window_blocks_ = 8;
  Prefix::make(64, made<pkv_prefix_config>({.eviction = PKV_EVICTION_LRU}), PKV_STORAGE_INTERNAL,
               32);
  const Text pinned = text(1, 64);
  serve(pinned);
  hint(cache_, PKV_HINT_PIN, pinned);
  Session running = open(cache_);
  extend(running, text(2, 32));
  CHECK(pkv_session_reserve(running, 4 * 16));
  const Session waiting = open(cache_);
  uint64_t matched = 99;
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_session_admit(waiting, 0, nullptr, 3 * 16, &matched));
  EXPECT_EQ(0u, figures().yielded_pins);
  running.close();
  CHECK(pkv_session_admit(waiting, 0, nullptr, 3 * 16, &matched));
  EXPECT_EQ(0u, figures().yielded_pins);
  EXPECT_EQ(64u, probe(pinned));
}

// The end of a pin of a text that a session uses frees nothing. So a step that lacks blocks anyway
// does not end it, nor does one that gets them from a pin that ends later.
TEST_F(HintTest, APinOfATextInUseStays) {
  make(10, 10);
  const Text system = text(1, 32);
  Session running = open(cache_);
  extend(running, system);
  hint(cache_, PKV_HINT_PIN, system, "", {.duration_ms = 100});
  serve(text(2, 32));
  hint(cache_, PKV_HINT_PIN, text(2, 32));
  extend(running, system + text(3, 64));
  Session session = open(cache_);
  EXPECT_EQ(32u, match(session, system));
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_session_reserve(session, 7 * 16));
  EXPECT_EQ(0u, figures().yielded_pins);
  EXPECT_EQ(4u, figures().pinned_blocks);
  CHECK(pkv_session_reserve(session, 6 * 16));
  EXPECT_EQ(1u, figures().yielded_pins);
  EXPECT_EQ(0u, probe(text(2, 32)));
  EXPECT_EQ(2u, figures().pinned_blocks);
}

TEST_F(HintTest, ADropStopsAtWhatIsInUse) {
  make(32);
  const Text system = text(1, 32), whole = system + text(2, 48);
  serve(whole);
  serve(system + text(3, 32));
  expect_done(48, hint(cache_, PKV_HINT_DROP, whole, "", {.first = 25}));
  EXPECT_EQ(32u, probe(whole));
  expect(PKV_HINT_OUTCOME_REJECTED, PKV_HINT_REASON_IN_USE, 0, hint(cache_, PKV_HINT_DROP, system));
  expect(PKV_HINT_OUTCOME_CLIPPED, PKV_HINT_REASON_IN_USE, 16, [&] {
    hint(cache_, PKV_HINT_PIN, system + text(3, 16));
    return hint(cache_, PKV_HINT_DROP, system + text(3, 32));
  }());
  expect(PKV_HINT_OUTCOME_MISSING, PKV_HINT_REASON_NOT_CACHED, 0,
         hint(cache_, PKV_HINT_DROP, whole, "", {.first = 32}));
  EXPECT_EQ(4u, figures().cleared_blocks);
}

TEST_F(HintTest, ASessionDropsWhenItIsClosed) {
  make(32);
  const Text whole = text(1, 96);
  Session session = open(cache_);
  extend(session, whole + text(2, 15));  // no full block more
  expect(PKV_HINT_OUTCOME_DEFERRED, PKV_HINT_REASON_NONE, 64,
         hint(session, PKV_HINT_DROP, {.first = 32}));
  EXPECT_EQ(96u, probe(whole));
  CHECK(pkv_session_suspend(session));
  EXPECT_EQ(96u, probe(whole)) << "it needs its tokens again";
  uint64_t length = 0, total = 0;
  CHECK(pkv_session_resume(session, &length, &total));
  EXPECT_EQ(96u, length);
  session.close();
  EXPECT_EQ(32u, probe(whole));

  Session suspended = open(cache_);
  extend(suspended, whole);
  hint(suspended, PKV_HINT_DROP, {.first = 33});
  CHECK(pkv_session_suspend(suspended));
  suspended.close();
  EXPECT_EQ(48u, probe(whole));

  Session twice = open(cache_);
  extend(twice, whole);
  const pkv_hint middle = {
      .struct_size = sizeof middle, .action = PKV_HINT_DROP, .first = 32, .end = 80};
  REFUSED(PKV_INVALID_ARGUMENT, pkv_hint_session(twice, &middle, nullptr));
  CHECK(pkv_session_suspend(twice));
  expect(PKV_HINT_OUTCOME_REJECTED, PKV_HINT_REASON_IN_USE, 0,
         hint(twice, PKV_HINT_DROP, {.first = 32, .end = 80}));  // the text goes on to 96
  expect_done(16, hint(twice, PKV_HINT_DROP, {.first = 80}));
  expect_done(48, hint(twice, PKV_HINT_DROP, {.first = 32, .end = 80}));
  EXPECT_EQ(32u, probe(whole));
  twice.close();

  Session trimmed = open(cache_);
  extend(trimmed, whole);
  hint(trimmed, PKV_HINT_DROP, {.first = 64});
  CHECK(pkv_session_trim(trimmed, 64));
  const Text answer = Text(whole.begin(), whole.begin() + 64) + text(2, 32);
  extend(trimmed, answer);
  trimmed.close();
  EXPECT_EQ(96u, probe(answer)) << "the thinking part was trimmed, and the answer stays";

  Session rest = open(cache_);
  extend(rest, whole);
  hint(rest, PKV_HINT_DROP, {.first = 64});
  CHECK(pkv_session_trim(rest, 70));
  const Text longer = Text(whole.begin(), whole.begin() + 70) + text(3, 26);
  extend(rest, longer);
  rest.close();
  EXPECT_EQ(64u, probe(longer)) << "some of the thinking part was left";
}

TEST_F(HintTest, ARejectedHintChangesNothing) {
  make(8);
  Session session = open(cache_);
  extend(session, text(1, 32));
  hint(session, PKV_HINT_SET_RETENTION, {.retention = PKV_RETENTION_HIGH});
  EXPECT_EQ(PKV_HINT_REASON_NO_STORE, hint(session, PKV_HINT_DEMOTE).reason);
  session.close();
  serve(text(2, 32));
  press(6);
  EXPECT_EQ(32u, probe(text(1, 32)));
  EXPECT_EQ(0u, probe(text(2, 32)));
}

TEST_F(HintTest, WithoutAnIndexOrAStore) {
  make(8);
  serve(text(1, 32));
  for (const pkv_hint_action action : {PKV_HINT_PREFETCH, PKV_HINT_STORE, PKV_HINT_DEMOTE})
    expect(PKV_HINT_OUTCOME_REJECTED, PKV_HINT_REASON_NO_STORE, 0,
           hint(cache_, action, text(1, 32)));
  Session off = open_salted("", PKV_PREFIX_OFF);
  for (int action = PKV_HINT_SET_RETENTION; action <= PKV_HINT_DROP; action++)
    expect(PKV_HINT_OUTCOME_REJECTED, PKV_HINT_REASON_NO_INDEX, 0,
           hint(off, static_cast<pkv_hint_action>(action)));
  const Cache plain = create(config_of({}, 8));
  const Session session = open(plain);
  const pkv_hint set_retention = hint_of(PKV_HINT_SET_RETENTION);
  REFUSED(PKV_UNSUPPORTED, pkv_hint_session(session, &set_retention, nullptr));
  REFUSED(PKV_UNSUPPORTED,
          pkv_hint_prompt(plain, TextArg(std::span<const int32_t>{}), &set_retention, nullptr));
}

TEST_F(HintTest, AClockThatGoesBackStandsStill) {
  make(16);
  serve(text(1, 32));
  serve(text(2, 32));
  set_time(50);
  expect_done(32, hint(cache_, PKV_HINT_PIN, text(1, 32), "", {.duration_ms = 100}));
  set_time(0);
  expect_done(32, hint(cache_, PKV_HINT_PIN, text(2, 32), "", {.duration_ms = 100}));
  set_time(149);
  EXPECT_EQ(4u, figures().pinned_blocks);
  set_time(150);
  EXPECT_EQ(0u, figures().pinned_blocks);
}

// At the last time, even what has no duration ends, and what is asked for does not begin.
TEST_F(HintTest, AllEndsAtTheLastTime) {
  make(8);
  serve(text(1, 32));
  expect_done(32, hint(cache_, PKV_HINT_PIN, text(1, 32)));
  clock_.set(UINT64_MAX - 1);
  EXPECT_EQ(2u, figures().pinned_blocks);
  clock_.end();
  EXPECT_EQ(0u, figures().pinned_blocks);
  expect_done(32, hint(cache_, PKV_HINT_PIN, text(1, 32), "", {.duration_ms = 100}));
  EXPECT_EQ(0u, figures().pinned_blocks);
}

// The system's clock is one that goes on.
TEST_F(HintTest, DurationsEndByThemselves) {
  auto prefix = made<pkv_prefix_config>();
  ModelConfig config = config_of({}, 8, PKV_STORAGE_EXTERNAL);
  config.prefix = &prefix;
  const Cache cache = create(config);
  const Text whole = text(1, 32);
  Session session = open(cache);
  Batch batch = begin(cache, {session}, {32});
  commit(batch, whole);
  hint(cache, PKV_HINT_PIN, whole, "", {.duration_ms = 1});
  while (prefix_stats_of(cache).pinned_blocks > 0) {
  }
}

// ---- With a store -------------------------------------------------------------------------------

class StoreHintTest : public HintTest {
 protected:
  void make(uint64_t blocks, uint64_t max_queued = 0) {
    table_ = memory_.table();
    config_ = made<pkv_store_config>({.store = &table_, .max_queued_tokens = 16 * max_queued});
    store_ = &config_;
    HintTest::make(blocks);
  }
  ~StoreHintTest() override { cache_ = {}; }
  StoreStats stats() { return store_stats_of(cache_); }
  void flush() { EXPECT_EQ(0u, flush_store(cache_)); }

  MemoryStore memory_;
  pkv_store table_ = made<pkv_store>();
  pkv_store_config config_;
};

TEST_F(StoreHintTest, ARunningSessionIsShared) {
  make(16);
  const Text whole = text(1, 64);
  Session session = open(cache_);
  extend(session, whole);
  Batch step = begin(cache_, {session}, {1});
  expect(PKV_HINT_OUTCOME_DEFERRED, PKV_HINT_REASON_NONE, 64, [&] {
    const pkv_hint_result result = hint(session, PKV_HINT_STORE);
    flush();
    return result;
  }());
  EXPECT_EQ(8u, stats().written_items) << "four blocks in two groups";
  step.close();
  expect(PKV_HINT_OUTCOME_DEFERRED, PKV_HINT_REASON_NOT_CACHED, 64,
         hint(cache_, PKV_HINT_STORE, whole + text(2, 32)));
  expect(PKV_HINT_OUTCOME_MISSING, PKV_HINT_REASON_NOT_CACHED, 0,
         hint(cache_, PKV_HINT_STORE, text(3, 32)));
  session.close();
  flush();
  EXPECT_EQ(8u, stats().written_items) << "it was there already";
}

// Only STORE and DEMOTE write. No value that this version does not know passes for one of them.
TEST_F(StoreHintTest, OtherActionsWriteNothing) {
  make(16);
  const Text whole = text(1, 64);
  Session session = open(cache_);
  extend(session, whole);
  const auto refused = [&](const pkv_hint& hint) {
    auto result = made<pkv_hint_result>();
    REFUSED(PKV_INVALID_ARGUMENT, pkv_hint_session(session, &hint, &result));
    REFUSED(PKV_INVALID_ARGUMENT, pkv_hint_prompt(cache_, TextArg(whole), &hint, &result));
    EXPECT_EQ(0, static_cast<int>(result.outcome));
  };
  for (int32_t action = -1; action < 256; action++) {
    pkv_hint hint = hint_of(PKV_HINT_SET_RETENTION);
    std::memcpy(&hint.action, &action, sizeof action);
    if (action == PKV_HINT_EXPECT_RETURN) hint.end = 0;
    if (action == PKV_HINT_STORE || action == PKV_HINT_DEMOTE || action == PKV_HINT_DROP) continue;
    if (action >= PKV_HINT_SET_RETENTION && action <= PKV_HINT_DROP)
      CHECK(pkv_hint_session(session, &hint, nullptr));
    else
      refused(hint);
  }
  for (const pkv_hint_action action : {PKV_HINT_STORE, PKV_HINT_DEMOTE}) {
    pkv_hint hint = hint_of(action);
    hint.reserved = 1;
    refused(hint);
    hint.reserved = 0;
    for (const int32_t retention : {-2, 2, 255, INT32_MIN, INT32_MAX}) {
      std::memcpy(&hint.retention, &retention, sizeof retention);
      refused(hint);
    }
  }
  flush();
  EXPECT_EQ(0u, stats().written_items);
  hint(session, PKV_HINT_STORE);
  flush();
  EXPECT_EQ(8u, stats().written_items);
}

TEST_F(StoreHintTest, WhatIsDemotedGoesFirst) {
  make(12);
  serve(text(1, 32));
  serve(text(2, 32));
  flush();
  EXPECT_EQ(PKV_HINT_OUTCOME_DEFERRED, hint(cache_, PKV_HINT_DEMOTE, text(2, 32)).outcome);
  flush();
  press(10);
  EXPECT_EQ(32u, probe(text(1, 32)));
  EXPECT_EQ(0u, probe(text(2, 32)));
  expect(PKV_HINT_OUTCOME_DEFERRED, PKV_HINT_REASON_NONE, 32,
         hint(cache_, PKV_HINT_PREFETCH, text(2, 32)));
  uint64_t cached = 0;
  const Text two = text(2, 32);
  CHECK(pkv_prefetch_wait(cache_, TextArg({two.data(), 32}), 20000, &cached, nullptr));
  EXPECT_EQ(32u, cached);
  expect_done(32, hint(cache_, PKV_HINT_PREFETCH, two));
}

TEST_F(StoreHintTest, WhatCouldNotBeWrittenIsNotDemoted) {
  make(12);
  serve(text(1, 32));
  flush();
  memory_.capacity = 0;
  serve(text(2, 32));
  hint(cache_, PKV_HINT_DEMOTE, text(2, 32));
  flush();
  press(10);
  EXPECT_EQ(0u, probe(text(1, 32))) << "the oldest text";
  EXPECT_EQ(32u, probe(text(2, 32)));
}

// The store takes the items of all blocks but the first.
TEST_F(StoreHintTest, OnlyItsOwnRangeMustBeWritten) {
  make(12);
  serve(text(2, 16));
  flush();
  for (const auto& [name, bytes] : memory_.items()) memory_.refuse(name);
  for (const uint64_t first : {0, 16}) {
    for (const auto& [name, bytes] : memory_.items()) memory_.lose(name);
    make(12);
    serve(text(1, 32));
    serve(text(2, 64));
    flush();
    EXPECT_EQ(1u, stats().unwritten_blocks);
    expect(PKV_HINT_OUTCOME_DEFERRED, PKV_HINT_REASON_NONE, 64,
           hint(cache_, PKV_HINT_DEMOTE, text(2, 64), "", {.first = first}));
    flush();
    press(9);
    EXPECT_EQ(first == 0 ? 0u : 32u, probe(text(1, 32))) << "the oldest text";
    EXPECT_EQ(first == 0 ? 48u : 16u, probe(text(2, 64)));
  }
}

TEST_F(StoreHintTest, HintsLeaveRoomInTheQueue) {
  make(64, 8);
  memory_.hold();
  int queued = 0;
  pkv_hint_result last{};
  std::vector<Session> running;
  for (int32_t name = 1; name <= 8; name++) {
    running.push_back(open(cache_));
    extend(running.back(), text(name, 32));
    last = hint(running.back(), PKV_HINT_STORE);
    queued += last.outcome == PKV_HINT_OUTCOME_DEFERRED;
    if (name == 1) memory_.await_held_call();  // nothing leaves the queue from then on
  }
  EXPECT_LT(queued, 5);
  EXPECT_EQ(PKV_HINT_OUTCOME_REJECTED, last.outcome);
  EXPECT_EQ(PKV_HINT_REASON_LIMIT, last.reason);
  memory_.go_on();
  flush();
}

TEST_F(StoreHintTest, APrefetchThatIsLateIsForgotten) {
  make(16);
  for (const int32_t name : {1, 2}) serve(text(name, 32));
  flush();
  clear();
  memory_.hold();
  hint(cache_, PKV_HINT_PREFETCH, text(1, 32));
  hint(cache_, PKV_HINT_PREFETCH, text(2, 32), "", {.duration_ms = 10});
  set_time(10);
  memory_.go_on();
  uint64_t cached = 0;
  const Text one = text(1, 32), two = text(2, 32);
  CHECK(pkv_prefetch_wait(cache_, TextArg({two.data(), 32}), 20000, &cached, nullptr));
  EXPECT_EQ(0u, cached);
  CHECK(pkv_prefetch_wait(cache_, TextArg({one.data(), 32}), 20000, &cached, nullptr));
  EXPECT_EQ(32u, cached);
}

// A step takes the blocks of a text that is being written for a hint, and it is not demoted then.
TEST_F(StoreHintTest, AStepTakesWhatIsShared) {
  make(8);
  memory_.hold();
  serve(text(1, 64));
  hint(cache_, PKV_HINT_DEMOTE, text(1, 64));
  press(8);
  memory_.go_on();
  flush();
  EXPECT_EQ(0u, probe(text(1, 64)));
}

// A step takes no more of what waits to be written than it needs, and nothing if that is too
// little.
TEST_F(StoreHintTest, AStepTakesNoMoreThanItNeeds) {
  make(16, 100);
  memory_.hold();
  for (const int32_t name : {1, 2, 3}) serve(text(name, 64));
  REFUSED(PKV_OUT_OF_BLOCKS, [&] {
    Session running = open(cache_);
    extend(running, text(4, 32));
    Session session = open(cache_);
    return pkv_session_reserve(session, 15 * 16);
  }());
  EXPECT_EQ(0u, stats().unwritten_blocks);
  EXPECT_EQ(14u, stats().queued_blocks);
  for (const int32_t name : {1, 2, 3}) EXPECT_EQ(64u, probe(text(name, 64)));
  press(6);
  uint64_t cached = 0;
  for (const int32_t name : {1, 2, 3}) cached += probe(text(name, 64));
  EXPECT_EQ(8u * 16, cached);
  memory_.go_on();
  flush();
  EXPECT_EQ(4u, stats().unwritten_blocks) << "of one text";
}

// Blocks that left the window of a session in its last step go before all that others lose.
TEST_F(StoreHintTest, ASessionGivesUpItsOwnBlocksFirst) {
  window_blocks_ = 8;
  table_ = memory_.table();
  config_ = made<pkv_store_config>({.store = &table_});
  store_ = &config_;
  Prefix::make(40, made<pkv_prefix_config>({.eviction = PKV_EVICTION_LRU}), PKV_STORAGE_INTERNAL,
               16);
  memory_.hold();
  serve(text(2, 32));
  Session session = open(cache_);
  extend(session, text(1, 48));
  begin(cache_, {session}, {5 * 16});
  EXPECT_EQ(32u, probe(text(2, 32)));
  memory_.go_on();
  flush();
  EXPECT_EQ(0u, stats().unwritten_blocks);
}

}  // namespace
}  // namespace cache_test::hint_test
