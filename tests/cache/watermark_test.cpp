// Blocks up to the watermark stay free for sessions that have run: those of which a step was
// committed, or which were resumed. All others leave them, whatever tokens they have.
#include <functional>

#include "../support/cache.h"
#include "../support/made.h"

namespace cache_test::watermark_test {
namespace {

using Text = std::vector<int32_t>;

const Model model{1, 1, 1, 16};
constexpr uint32_t watermark = 4, size = 16;

Text text(uint32_t n) {
  Text tokens(n);
  for (uint32_t i = 0; i < n; i++) tokens[i] = static_cast<int32_t>(i);
  return tokens;
}

Cache make_cache(uint64_t blocks) {
  auto prefix = made<pkv_prefix_config>();
  ModelConfig config = config_of(model, blocks, PKV_STORAGE_EXTERNAL);
  config.prefix = &prefix;
  config.watermark_blocks = watermark;
  return create(config);
}

// A session that computes a text of this length.
Session computed(pkv_cache cache, uint32_t tokens) {
  Session session = open(cache);
  Batch batch = begin(cache, {session}, {tokens});
  commit(batch, text(tokens));
  return session;
}

// One that takes over the beginning of a text.
Session matched(pkv_cache cache, uint32_t tokens) {
  Session session = open(cache);
  uint64_t found = 0;
  CHECK(pkv_session_admit(session, tokens, text(tokens).data(), 0, &found));
  EXPECT_EQ(tokens, found);
  return session;
}

Session loaded(pkv_cache cache, uint32_t tokens) {
  Session session = computed(cache, tokens);
  std::vector<unsigned char> bytes(1 << 16);
  auto stream = buffer_stream(bytes.data(), bytes.size());
  const pkv_file_item item = {session, nullptr, 0};
  CHECK(pkv_file_save(cache, 1, &item, nullptr, &stream, &stream.size));
  session.close();
  pkv_session again;
  size_t count;
  CHECK(pkv_file_load(cache, nullptr, &stream, 1, &again, nullptr, &count));
  return Session(again);
}

// A way to a session that has tokens and has not run.
struct Way {
  const char* name;
  std::function<Session(pkv_cache, Session& origin)> get;
};

const Way ways[] = {
    {"a match",
     [](pkv_cache cache, Session&) {
       computed(cache, 64);
       return matched(cache, 64);
     }},
    {"a match inside a block that is in use",
     [](pkv_cache cache, Session& origin) {
       origin = computed(cache, 80);
       return matched(cache, 72);
     }},
    {"a fork", [](pkv_cache cache, Session& origin) { return fork(origin = computed(cache, 64)); }},
    {"a fork with a shared tail",
     [](pkv_cache cache, Session& origin) { return fork(origin = computed(cache, 72)); }},
    {"a fork of a fork",
     [](pkv_cache cache, Session& origin) { return fork(fork(origin = computed(cache, 64))); }},
    {"a snapshot", [](pkv_cache cache, Session&) { return thaw(freeze(computed(cache, 64))); }},
    {"a file", [](pkv_cache cache, Session&) { return loaded(cache, 64); }},
};

uint64_t available(pkv_cache cache) {
  return pool_stats_of(cache).free_blocks + stats_of(cache).evictable_blocks;
}

pkv_status try_step(pkv_cache cache, pkv_session session, uint32_t tokens) {
  pkv_batch batch;
  const pkv_status status = pkv_batch_begin(cache, 1, &session, &tokens, &batch);
  if (status == PKV_OK) CHECK(pkv_batch_abort(batch));
  return status;
}

TEST(Watermark, IsLeftByWhoHasNotRun) {
  for (const Way& way : ways) {
    SCOPED_TRACE(way.name);
    Cache cache = make_cache(20);
    Session origin, session = way.get(cache, origin), running = open(cache);
    grow(cache, running, 1);
    grow(cache, running, static_cast<uint32_t>(available(cache) - 6) * size);
    ASSERT_EQ(6u, available(cache));
    // The step also copies a shared tail.
    const auto length = static_cast<uint32_t>(length_of(session));
    const uint32_t two_blocks = length % size == 0 ? 2 * size : 2 * size - length % size;
    REFUSED(PKV_OUT_OF_BLOCKS, try_step(cache, session, two_blocks + 1));
    EXPECT_EQ(1u, pkv_last_error_details()->blocks_short);
    REFUSED(PKV_OUT_OF_BLOCKS, pkv_session_reserve(session, length + two_blocks + 1));
    EXPECT_EQ(PKV_OK, try_step(cache, session, two_blocks));
    EXPECT_EQ(PKV_OK, try_step(cache, running, 6 * size - 1)) << "who runs may take all";
    pkv_session victims[1], step = session;
    const uint32_t tokens = two_blocks + 1;
    size_t count = 0;
    CHECK(pkv_session_set_priority(session, 1));
    CHECK(pkv_batch_choose_victims(cache, 1, &step, &tokens, 1, victims, &count));
    EXPECT_EQ(1u, count) << "what is chosen follows the same rule";
    CHECK(pkv_session_reserve(session, length + two_blocks));
    grow(cache, session, two_blocks);
    ASSERT_EQ(4u, available(cache));
    EXPECT_EQ(PKV_OK, try_step(cache, session, 4 * size)) << "it runs now";
    CHECK(pkv_session_trim(session, 0));
    REFUSED(PKV_OUT_OF_BLOCKS,
            try_step(cache, session, static_cast<uint32_t>(available(cache) - 3) * size));
  }
}

// A resume leaves the watermark, and the session runs then, also if it has to compute all again.
TEST(Watermark, AResumedSessionRuns) {
  Cache cache = make_cache(20);
  Session session = computed(cache, 64), other = open(cache);
  CHECK(pkv_session_suspend(session));
  CHECK(pkv_prefix_clear(cache, nullptr, PKV_ALL_SALTS));
  grow(cache, other, 11 * size);
  uint64_t length = 9, total = 9;
  CHECK(pkv_session_resume(session, &length, &total));
  EXPECT_EQ(0u, length);
  ASSERT_EQ(5u, available(cache));
  EXPECT_EQ(PKV_OK, try_step(cache, session, 9 * size));
}

// A session that could never leave the watermark with all that it holds is refused for good.
TEST(Watermark, WhatCanNeverBegin) {
  for (const Way& way : ways) {
    SCOPED_TRACE(way.name);
    Cache cache = make_cache(10);
    Session origin, session = way.get(cache, origin);
    const auto length = static_cast<uint32_t>(length_of(session));
    REFUSED(PKV_TOO_LARGE, try_step(cache, session, 6 * size + 1 - length));
    REFUSED(PKV_TOO_LARGE, pkv_session_reserve(session, 6 * size + 1));
    EXPECT_EQ(length, length_of(session));
    EXPECT_EQ(PKV_OK, try_step(cache, session, 5 * size - length));
    grow(cache, session, 5 * size - length);
    origin.close();
    EXPECT_EQ(PKV_OK, try_step(cache, session, 5 * size));
  }
}

// ---- Admission: a match and a reserve in one ----

TEST(Admission, MatchesAndReservesOrDoesNeither) {
  Cache cache = make_cache(20);
  computed(cache, 64);
  Session running = open(cache), session = open(cache);
  grow(cache, running, 10 * size);
  ASSERT_EQ(10u, available(cache));  // four of them cached
  uint64_t matched = 99;
  for (int attempt = 0; attempt < 3; attempt++) {
    // Three blocks are needed beside the cached ones, and the watermark of four.
    REFUSED(PKV_OUT_OF_BLOCKS,
            pkv_session_admit(session, 64, text(64).data(), 6 * size + 1, &matched));
    EXPECT_EQ(1u, pkv_last_error_details()->blocks_short);
    EXPECT_EQ(0u, info_of(session).blocks);
    EXPECT_EQ(10u, available(cache)) << "a request that waits holds nothing";
    EXPECT_EQ(0u, prefix_stats_of(cache).lookups);
    EXPECT_EQ(0u, prefix_stats_of(cache).lookup_tokens);
  }
  REFUSED(PKV_TOO_LARGE, pkv_session_admit(session, 64, text(64).data(), 16 * size + 1, &matched));
  EXPECT_EQ(99u, matched);
  CHECK(pkv_session_admit(session, 64, text(64).data(), 6 * size, &matched));
  EXPECT_EQ(64u, matched);
  EXPECT_EQ(64u, length_of(session));
  EXPECT_EQ(6u, info_of(session).blocks);
  EXPECT_EQ(1u, prefix_stats_of(cache).lookups);
  EXPECT_EQ(watermark, available(cache));
  grow(cache, running, watermark * size);
  grow(cache, session, 2 * size);  // out of its reservation
  CHECK(pkv_cache_validate(cache));
}

TEST(Admission, WithoutAnIndexItReserves) {
  Cache cache = create(config_of(model, 8, PKV_STORAGE_EXTERNAL));
  Session session = open(cache), other = open(cache);
  uint64_t matched = 99;
  CHECK(pkv_session_admit(session, 20, text(20).data(), 100, &matched));
  EXPECT_EQ(0u, matched);
  EXPECT_EQ(7u, info_of(session).blocks);
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_session_admit(other, 0, nullptr, 32, &matched));
}

// What a request in the queue finds stays as it was for the eviction policy, however often it asks.
TEST(Admission, ARefusedOneIsNoUse) {
  auto prefix = made<pkv_prefix_config>({.eviction = PKV_EVICTION_LRU});
  ModelConfig config = config_of(model, 12, PKV_STORAGE_EXTERNAL);
  config.prefix = &prefix;
  Cache cache = create(config);
  const Text rare = text(32);
  Text often = rare;
  for (int32_t& token : often) token += 1000;
  for (const Text& each : {rare, often}) {
    Session session = open(cache);
    Batch batch = begin(cache, {session}, {32});
    commit(batch, each);
  }
  uint64_t found = 0;
  CHECK(pkv_session_admit(open(cache), 32, often.data(), 0, &found));
  Session running = open(cache), waiting = open(cache);
  grow(cache, running, 6 * size);
  for (int attempt = 0; attempt < 5; attempt++)
    REFUSED(PKV_OUT_OF_BLOCKS, pkv_session_admit(waiting, 32, rare.data(), 9 * size, &found));
  grow(cache, running, 4 * size);  // evicts two blocks
  CHECK(pkv_prefix_probe(cache, TextArg({often.data(), 32}), &found));
  EXPECT_EQ(32u, found);
  CHECK(pkv_prefix_probe(cache, TextArg({rare.data(), 32}), &found));
  EXPECT_EQ(0u, found);
}

}  // namespace
}  // namespace cache_test::watermark_test
