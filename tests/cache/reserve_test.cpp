// The promise of pkv_session_reserve: a step within the reservation gets its blocks, whatever
// others take meanwhile. PKV_ROUNDS makes the random play longer.
#include <cstdlib>

#include "../support/memory.h"
#include "../support/rounds.h"
#include "../support/sanitizers.h"
#include "reserve_play.h"

namespace reserve {
namespace {

// Makes a cache of one group of 8 blocks.
Cache create_small(const SmallGroup& group, pkv_storage storage = PKV_STORAGE_EXTERNAL) {
  return create(SmallCache{.groups = {group}, .blocks = 8, .storage = storage});
}

void step(pkv_cache cache, pkv_session session, uint32_t count) {
  Batch batch = begin(cache, {session}, {count});
  std::vector<int32_t> ids(count);
  for (uint32_t i = 0; i < count; i++) ids[i] = static_cast<int32_t>(length_of(session) + i);
  commit(batch, ids);
}

std::vector<Session> take_the_rest(pkv_cache cache) {
  std::vector<Session> others;
  for (;;) {
    Session other = open(cache);
    if (pkv_session_reserve(other, 1) != PKV_OK) return others;
    others.push_back(std::move(other));
  }
}

TEST(Reserve, CountsTheCopyOfATailThatAForkShares) {
  Cache cache = create_small({});
  Session session = open(cache);
  step(cache, session, 20);
  const Session child = fork(session);
  CHECK(pkv_session_reserve(session, 40));
  const std::vector<Session> others = take_the_rest(cache);
  {
    Batch aborted = begin(cache, {session}, {20});
  }
  CHECK(pkv_cache_validate(cache));
  for (int i = 0; i < 20; i++) step(cache, session, 1);
  CHECK(pkv_cache_validate(cache));
}

TEST(Reserve, CountsTheCopyOfATailThatTheIndexHas) {
  Cache cache = create_small({});
  Session session = open(cache);
  step(cache, session, 40);
  CHECK(pkv_session_trim(session, 20));
  CHECK(pkv_session_reserve(session, 40));
  const std::vector<Session> others = take_the_rest(cache);
  step(cache, session, 1);
  step(cache, session, 19);
}

TEST(Reserve, GivesTheBlockOfACopyBackThatIsNotNeeded) {
  Cache cache = create_small({});
  Session session = open(cache);
  step(cache, session, 20);
  Session child = fork(session);
  CHECK(pkv_session_reserve(session, 30));
  EXPECT_EQ(3u, info_of(session).blocks);
  child.close();
  step(cache, session, 1);
  EXPECT_EQ(2u, info_of(session).blocks);
  child = fork(session);
  CHECK(pkv_session_reserve(session, 30));
  EXPECT_EQ(3u, info_of(session).blocks);
  CHECK(pkv_session_trim(session, 21));
  EXPECT_EQ(2u, info_of(session).blocks);
}

TEST(Reserve, CountsTheStateBeforeAStepAndThatOfTheLastFullBlock) {
  for (const uint32_t first : {1, 13, 15, 16}) {
    Cache cache = create_small({.state_bytes = 64, .checkpoint_interval = 32});
    Session session = open(cache);
    CHECK(pkv_session_reserve(session, 17));
    const std::vector<Session> others = take_the_rest(cache);
    step(cache, session, first);
    step(cache, session, 17 - first);
  }
}

// If blocks are short, a step gives up spare blocks that are no longer needed, but none that it
// takes itself.
TEST(Reserve, AStepBeyondItGivesUpNoSpareBlockThatItTakes) {
  Cache cache = create_small({.state_bytes = 64, .max_verify_tokens = 4});
  Session session = open(cache);
  step(cache, session, 1);
  Session child = fork(session);
  CHECK(pkv_session_reserve(session, 3));
  // The state before a step is given back now, so one spare block less would suffice.
  child.close();
  EXPECT_EQ(4u, info_of(session).blocks);
  std::vector<Session> others = take_the_rest(cache);
  const uint32_t four = 4;
  const pkv_session self = session;
  pkv_session victim = nullptr;
  size_t victims = 0;
  CHECK(pkv_batch_choose_victims(cache, 1, &self, &four, 1, &victim, &victims));
  EXPECT_EQ(1u, victims);
  pkv_batch batch = nullptr;
  EXPECT_EQ(PKV_OUT_OF_BLOCKS, pkv_batch_begin(cache, 1, &self, &four, &batch));
  others.pop_back();
  step(cache, session, 4);
  CHECK(pkv_cache_validate(cache));
}

// A step that finds its pool empty takes free pages, or evicts, before it takes from its sessions
// what they keep for a trim.
TEST(Reserve, AStepTakesWhatNobodyUsesBeforeWhatItsSessionsKeep) {
  const SmallGroup window{.window = 20, .blocks = 8}, states{.state_bytes = 2048, .blocks = 7};
  for (const SmallGroup& group : {window, states})
    for (const bool shared : {false, true})
      for (const bool full : {false, true}) {
        SCOPED_TRACE(testing::Message() << "window " << group.window << ", shared memory " << shared
                                        << ", full of cached texts " << full);
        Cache cache = create(SmallCache{
            .groups = {{}, group}, .blocks = 8, .shared = shared, .storage = PKV_STORAGE_EXTERNAL});
        Session session = open(cache);
        step(cache, session, 32);
        step(cache, session, group.has_states() ? 8 : 16);
        for (int32_t text = 1; full && text <= 5; text++) {
          const Session other = open(cache);
          Batch batch = begin(cache, {other}, {16});
          commit(batch, std::vector<int32_t>(16, 1000 + text));
        }
        const uint64_t free =
            shared ? stats_of(cache).free_pages : pool_stats_of(cache).free_blocks;
        EXPECT_EQ(full, free == 0);
        {
          const Batch aborted = begin(cache, {session}, {1});
        }
        EXPECT_EQ(PKV_OK, pkv_session_trim(session, 32)) << pkv_last_error();
        CHECK(pkv_cache_validate(cache));
      }
}

// While others may match what a session publishes, the session would not get its states back.
TEST(Reserve, KeepsAStateToItselfUntilTheRoomIsUsedOrGivenBack) {
  Cache cache = create_small({.state_bytes = 64});
  std::vector<int32_t> text(48);
  for (int32_t i = 0; i < 48; i++) text[static_cast<size_t>(i)] = i;
  uint64_t matched = 0;
  {
    Session session = open(cache);
    CHECK(pkv_session_reserve(session, 100));
    for (int i = 0; i < 3; i++) step(cache, session, 16);
    Session other = open(cache);
    CHECK(pkv_session_admit(other, text.size(), text.data(), 0, &matched));
    EXPECT_EQ(0u, matched);
  }
  Session other = open(cache);
  CHECK(pkv_session_admit(other, text.size(), text.data(), 0, &matched));
  EXPECT_EQ(48u, matched) << "the session is closed";
}

// The block for the copy of a tail can be used for something else once the tail is not shared any
// more.
TEST(Reserve, AVictimThatSharedTheTailGivesBackItsCopy) {
  Cache cache = create_small({});
  Session session = open(cache);
  step(cache, session, 20);
  Session child = fork(session);
  CHECK(pkv_session_set_priority(child, -1));
  CHECK(pkv_session_reserve(session, 32));
  const std::vector<Session> others = take_the_rest(cache);
  const pkv_session self = session;
  const uint32_t count = 28;
  pkv_session victims[8];
  size_t found = 0;
  CHECK(pkv_batch_choose_victims(cache, 1, &self, &count, 8, victims, &found));
  ASSERT_EQ(1u, found);
  EXPECT_EQ(child.get(), victims[0]);
  CHECK(pkv_session_suspend(child));
  step(cache, session, count);
}

TEST(Reserve, NothingIsMatchedAfterIt) {
  for (const SmallCache& kind : kinds) {
    Cache cache = create(kind);
    Session session = open(cache);
    CHECK(pkv_session_reserve(session, 1));
    const int32_t token = 7;
    uint64_t matched = 0;
    EXPECT_EQ(PKV_INVALID_ARGUMENT, pkv_session_admit(session, 1, &token, 0, &matched))
        << kind.name;
  }
}

TEST(Reserve, NumbersOfTokensThatNoSessionCanHaveAreRefusedAtOnce) {
  memory::largest = size_t{64} << 20;  // as a machine would eventually refuse more
  for (const SmallCache& kind : kinds) {
    Cache cache = create(kind);
    Session session = open(cache);
    for (const int bits : {50, 58, 63, 64}) {
      const uint64_t tokens = bits == 64 ? UINT64_MAX : uint64_t{1} << bits;
      const pkv_status status = pkv_session_reserve(session, tokens);
      EXPECT_TRUE(status == PKV_TOO_LARGE || status == PKV_OUT_OF_MEMORY)
          << kind.name << ": " << status;
    }
    CHECK(pkv_cache_validate(cache));
  }
}

const uint64_t rounds = pkv::test::number_in("PKV_ROUNDS", pkv::test::sanitized ? 60 : 100);

TEST(Reserve, EveryStepInsideOfItGetsItsBlocks) {
  for (const SmallCache& kind : kinds) {
    uint64_t steps = 0;
    for (uint64_t seed = 1; seed <= rounds; seed++) {
      SCOPED_TRACE(testing::Message() << kind.name << ", seed " << seed);
      ReservePlay play(kind, seed);
      ASSERT_NO_THROW(play.run());
      steps += play.steps();
    }
    EXPECT_GT(steps, rounds) << kind.name;
  }
}

// A step without tokens frees what left the window, and spare blocks. A step that would get its
// blocks after such a step must also get them without it.
TEST(Reserve, NoStepIsRefusedThatWorksAfterAnEmptyOne) {
  uint64_t refused = 0;
  for (SmallCache kind : kinds) {
    for (uint64_t seed = 1; seed <= rounds; seed++) {
      kind.prefix = seed % 2 == 0;
      SCOPED_TRACE(testing::Message() << kind.name << ", seed " << seed);
      LonePlay play(kind, seed);
      ASSERT_NO_THROW(play.run());
      refused += play.refused();
    }
  }
  EXPECT_GT(refused, rounds / 3);
}

}  // namespace
}  // namespace reserve
