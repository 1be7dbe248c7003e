// The sessions that the library chooses for suspension so that the next step fits. PKV_ROUNDS makes
// the random play longer, from PKV_SEED on.
#include <algorithm>

#include "../support/cache.h"
#include "../support/hints.h"
#include "../support/memory.h"
#include "../support/rounds.h"
#include "../support/rows.h"
#include "small_cache.h"

namespace cache_test::victims_test {
namespace {

const Model model{1, 1, 1, 16};

class Victims : public testing::Test {
 protected:
  // Opens a session with `tokens` tokens.
  pkv_session add(uint32_t tokens, int32_t priority = 0) {
    sessions_.push_back(open(cache_));
    CHECK(pkv_session_set_priority(sessions_.back(), priority));
    if (tokens > 0) grow(cache_, sessions_.back(), tokens);
    return sessions_.back();
  }

  std::vector<pkv_session> choose(const std::vector<pkv_session>& list,
                                  const std::vector<uint32_t>& counts) {
    size_t count = 99;
    const pkv_status status = pkv_batch_choose_victims(cache_, list.size(), list.data(),
                                                       counts.data(), 0, nullptr, &count);
    if (status != PKV_BUFFER_TOO_SMALL) CHECK(status);
    std::vector<pkv_session> victims(count);
    CHECK(pkv_batch_choose_victims(cache_, list.size(), list.data(), counts.data(), count,
                                   victims.data(), &count));
    return victims;
  }

  // Checks that the step works once the victims are suspended, and not before.
  void expect_victims(const std::vector<pkv_session>& expected, std::vector<pkv_session> list,
                      std::vector<uint32_t> counts) {
    EXPECT_EQ(expected, choose(list, counts));
    pkv_batch batch;
    REFUSED(PKV_OUT_OF_BLOCKS,
            pkv_batch_begin(cache_, list.size(), list.data(), counts.data(), &batch));
    for (const pkv_session victim : expected) {
      CHECK(pkv_session_suspend(victim));
      const auto at = std::find(list.begin(), list.end(), victim);
      if (at == list.end()) continue;
      counts.erase(counts.begin() + (at - list.begin()));
      list.erase(at);
    }
    Batch works = begin(cache_, list, counts);
  }

  Cache cache_ = create(config_of(model, 8, PKV_STORAGE_EXTERNAL));
  std::vector<Session> sessions_;
};

TEST_F(Victims, NoneWhereTheStepFits) {
  pkv_session a = add(16), b = add(20);
  EXPECT_TRUE(choose({a, b}, {16, 16}).empty());
  EXPECT_TRUE(choose({}, {}).empty());
}

TEST_F(Victims, TheNewestOfTheLowestPriorityGoesFirst) {
  pkv_session a = add(32), b = add(32, -1), c = add(32, -1), d = add(32);
  expect_victims({c, b}, {a, b, c, d}, {1, 1, 1, 1});
  expect_victims({d}, {a}, {96});
}

TEST_F(Victims, ThoseOutsideOfTheListAndThoseWhoWouldBegin) {
  pkv_session a = add(64), idle = add(48, 5), fresh = add(0);
  EXPECT_EQ(std::vector{fresh}, choose({a, fresh}, {1, 1}))
      << "better not to begin than to stop somebody";
  CHECK(pkv_session_set_priority(fresh, 9));
  CHECK(pkv_session_set_priority(a, 7));
  expect_victims({idle}, {a, fresh}, {1, 1});
}

TEST_F(Victims, SharedBlocksAreFreeOnceAllHoldersAre) {
  pkv_session a = add(48), b = add(80);
  sessions_.push_back(fork(b));
  pkv_session c = sessions_.back();
  grow(cache_, a, 0);
  EXPECT_EQ(0u, pool_stats_of(cache_).free_blocks);
  expect_victims({c, b}, {a}, {1});
}

TEST_F(Victims, ThoseInUseAreLeftOut) {
  pkv_session a = add(48), b = add(32), c = add(48);
  Batch batch = begin(cache_, {c}, {0});
  expect_victims({b}, {a}, {1});
}

TEST_F(Victims, TheFirstInRankStays) {
  pkv_session a = add(48), b = add(48);
  size_t count = 7;
  const uint32_t max_tokens = 80, too_much = 81;
  Batch batch = begin(cache_, {b}, {16});
  REFUSED(PKV_OUT_OF_BLOCKS,
          pkv_batch_choose_victims(cache_, 1, &a, &max_tokens, 0, nullptr, &count));
  batch.close();
  REFUSED(PKV_TOO_LARGE, pkv_batch_choose_victims(cache_, 1, &a, &too_much, 0, nullptr, &count));
  EXPECT_EQ(7u, count);
}

TEST_F(Victims, OfABatchThatIsTooLargeTheyAreThoseToLeaveOut) {
  const pkv_session list[] = {add(0), add(0)};
  const uint32_t counts[] = {80, 80}, with_too_much[] = {80, 500};
  pkv_batch batch;
  REFUSED(PKV_BATCH_TOO_LARGE, pkv_batch_begin(cache_, 2, list, counts, &batch));
  REFUSED(PKV_TOO_LARGE, pkv_batch_begin(cache_, 2, list, with_too_much, &batch));
  EXPECT_EQ((std::vector{list[1]}), choose({list[0], list[1]}, {80, 80}));
  CHECK(pkv_batch_begin(cache_, 1, list, counts, &batch));
  CHECK(pkv_batch_abort(batch));
}

// Requests of two classes share a pool that is far too small. All of them finish, and none of high
// priority is ever stopped for one of low priority.
TEST(VictimsLoop, EverybodyFinishesAndTheImportantFirst) {
  struct Request {
    uint32_t total;
    int32_t priority;
    Session session;
    uint32_t suspended = 0;
  };
  ModelConfig config = config_of(model, 20, PKV_STORAGE_EXTERNAL);
  config.watermark_blocks = 2;
  Cache cache = create(config);
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 12; i++) {
    requests.push_back({100 + i * 7, i % 4 == 3 ? 1 : 0, open(cache)});
    CHECK(pkv_session_set_priority(requests.back().session, requests.back().priority));
  }
  uint32_t steps = 0, suspensions = 0;
  for (size_t finished = 0; finished < requests.size(); steps++) {
    ASSERT_LT(steps, 5000u) << "no progress";
    std::vector<pkv_session> list;
    std::vector<uint32_t> counts;
    std::vector<Request*> owners;
    for (Request& request : requests) {
      if (request.session == nullptr) continue;
      uint64_t length, total;
      const pkv_status resumed = pkv_session_resume(request.session, &length, &total);
      if (resumed == PKV_OUT_OF_BLOCKS) continue;
      CHECK(resumed);
      list.push_back(request.session);
      counts.push_back(length < total
                           ? static_cast<uint32_t>(std::min<uint64_t>(total - length, 32))
                       : length == 0 ? 40
                                     : 1);
      owners.push_back(&request);
    }
    size_t count = 0;
    std::vector<pkv_session> victims(list.size());
    CHECK(pkv_batch_choose_victims(cache, list.size(), list.data(), counts.data(), victims.size(),
                                   victims.data(), &count));
    for (size_t i = 0; i < count; i++) {
      const size_t at =
          static_cast<size_t>(std::find(list.begin(), list.end(), victims[i]) - list.begin());
      ASSERT_LT(at, list.size());
      CHECK(pkv_session_suspend(victims[i]));
      owners[at]->suspended += length_of(victims[i]) > 0;
      list.erase(list.begin() + static_cast<int64_t>(at));
      counts.erase(counts.begin() + static_cast<int64_t>(at));
      owners.erase(owners.begin() + static_cast<int64_t>(at));
      suspensions++;
    }
    ASSERT_FALSE(list.empty());
    Batch batch = begin(cache, list, counts);
    commit(batch);
    CHECK(pkv_cache_validate(cache));
    for (Request* owner : owners) {
      if (length_of(owner->session) < owner->total) continue;
      owner->session.close();
      finished++;
    }
  }
  EXPECT_GT(suspensions, 0u) << "the pool was too large to show anything";
  EXPECT_EQ(20u, pool_stats_of(cache).free_blocks);
}

// ---- Forks --------------------------------------------------------------------------------------

// Forks of a few sessions, many of which write to one tail in the next step, some with spare blocks
// for a copy of it.
class Forks {
 public:
  Forks(const SmallCache& kind, uint64_t seed)
      : random_(seed), cache_(create(kind)), has_index_(kind.prefix) {
    for (uint64_t n = random_.between(1, 3); n > 0; n--) {
      sessions_.push_back(open(cache_));
      grow(random_.between(1, 40));
    }
    for (uint64_t n = random_.between(5, 40); n > 0; n--) change();
    for (uint64_t n = random_.between(1, sessions_.size()); n > 0; n--) {
      step_.push_back(sessions_[step_.size()]);
      counts_.push_back(static_cast<uint32_t>(random_.below(random_.chance(30) ? 60 : 3)));
    }
  }

  // Suspends what the library names, one session after the other. The step must fail before each of
  // them, and work after the last one. Returns how many there were.
  size_t suspend_victims() {
    std::vector<pkv_session> victims(sessions_.size());
    size_t count = 0;
    const pkv_status status = pkv_batch_choose_victims(
        cache_, step_.size(), step_.data(), counts_.data(), victims.size(), victims.data(), &count);
    if (status == PKV_TOO_LARGE) return 0;
    if (status == PKV_OUT_OF_BLOCKS) {
      EXPECT_NE(PKV_OK, begin_step()) << "nobody need be suspended";
      return 0;
    }
    CHECK(status);
    for (size_t i = 0; i < count; i++) {
      EXPECT_NE(PKV_OK, begin_step()) << i << " of " << count << " victims are enough";
      CHECK(pkv_session_suspend(victims[i]));
      const auto at = std::find(step_.begin(), step_.end(), victims[i]) - step_.begin();
      if (at == static_cast<ptrdiff_t>(step_.size())) continue;
      step_.erase(step_.begin() + at);
      counts_.erase(counts_.begin() + at);
    }
    EXPECT_EQ(PKV_OK, begin_step()) << count << " victims are too few: " << pkv_last_error();
    CHECK(pkv_cache_validate(cache_));
    return count;
  }

 private:
  // Begins the step, and aborts it if that works. If it fails, what is cached stays cached.
  pkv_status begin_step() {
    const uint64_t cached = cached_blocks();
    pkv_batch begun = nullptr;
    const pkv_status status =
        pkv_batch_begin(cache_, step_.size(), step_.data(), counts_.data(), &begun);
    const Batch batch(begun);
    EXPECT_TRUE(status == PKV_OK || cached == cached_blocks()) << "a step failed";
    return status;
  }

  uint64_t cached_blocks() const { return has_index_ ? prefix_stats_of(cache_).cached_blocks : 0; }

  // Lets the newest session have more tokens, if there are blocks for them.
  void grow(uint64_t tokens) {
    const pkv_session session = sessions_.back();
    const auto count = static_cast<uint32_t>(tokens);
    pkv_batch begun = nullptr;
    if (pkv_batch_begin(cache_, 1, &session, &count, &begun) != PKV_OK) return;
    Batch batch(begun);
    std::vector<int32_t> ids(tokens);
    for (int32_t& id : ids) id = static_cast<int32_t>(random_.below(3));
    commit(batch, ids);
  }

  void change() {
    const uint64_t chosen = random_.below(sessions_.size());
    std::swap(sessions_[chosen], sessions_.back());
    const pkv_session session = sessions_.back();
    const uint64_t length = length_of(session), what = random_.below(100);
    if (what < 50 && sessions_.size() < 20) {
      sessions_.push_back(fork(session));
    } else if (what < 70) {
      (void)pkv_session_reserve(session, length + random_.between(1, 40));
    } else if (what < 80) {
      (void)pkv_session_trim(session, length - std::min(length, random_.between(1, 5)));
    } else if (what < 90) {
      CHECK(pkv_session_set_priority(session, static_cast<int32_t>(random_.below(3))));
    } else if (what < 95) {
      snapshots_.push_back(freeze(session));
    } else {
      grow(random_.between(1, 20));
    }
  }

  Random random_;
  Cache cache_;
  const bool has_index_;
  std::vector<Session> sessions_;
  std::vector<Snapshot> snapshots_;
  std::vector<pkv_session> step_;
  std::vector<uint32_t> counts_;
};

// Sessions of one text of two blocks, whose last block the index has, too, so that a copy of that
// tail is reserved.
class CachedTail : public testing::Test {
 protected:
  CachedTail() {
    Batch batch = begin(cache_, {longer_}, {32});
    commit(batch, text_);
    CHECK(pkv_session_trim(longer_, 20));
  }

  uint64_t cached() const {
    uint64_t tokens = 0;
    CHECK(pkv_prefix_probe(cache_, TextArg(text_), &tokens));
    return tokens;
  }
  // Chooses victims for a step of the longer session.
  std::vector<pkv_session> choose(uint32_t tokens) const {
    const pkv_session step = longer_;
    std::vector<pkv_session> victims(8);
    size_t count = 0;
    CHECK(pkv_batch_choose_victims(cache_, 1, &step, &tokens, 8, victims.data(), &count));
    victims.resize(count);
    return victims;
  }

  const std::vector<int32_t> text_ = std::vector<int32_t>(32, 7);
  Cache cache_ = create(SmallCache{.groups = {{}}, .blocks = 6, .storage = PKV_STORAGE_EXTERNAL});
  Session longer_ = open(cache_);
};

TEST_F(CachedTail, IsGivenUpForTheSpareBlockOfItsCopy) {
  CHECK(pkv_session_reserve(longer_, 24));
  const Session other = open(cache_, 32);
  EXPECT_EQ(1u, pool_stats_of(cache_).free_blocks);
  EXPECT_EQ(std::vector<pkv_session>{}, choose(2 * 16 + 10));
  const Batch works = begin(cache_, {longer_}, {2 * 16 + 10});
}

TEST_F(CachedTail, IsGivenUpOnceAVictimThatDoesNotFillItHas) {
  Session shorter = fork(longer_);
  CHECK(pkv_session_trim(shorter, 19));
  CHECK(pkv_session_set_priority(shorter, -1));
  CHECK(pkv_session_reserve(longer_, 24));
  const Session other = open(cache_, 32);
  EXPECT_EQ(std::vector{shorter.get()}, choose(2 * 16 + 10));
  CHECK(pkv_session_suspend(shorter));
  const Batch works = begin(cache_, {longer_}, {2 * 16 + 10});
}

// The session that need not copy a tail if the index lets go of it keeps the spare block for the
// copy, since the step may be aborted.
TEST_F(CachedTail, StaysWhereNoBlockBecomesFree) {
  Session shorter = fork(longer_);
  CHECK(pkv_session_trim(shorter, 19));
  CHECK(pkv_session_reserve(longer_, 21));
  const Session rest = open(cache_, 3 * 16);
  const pkv_session step[] = {longer_, shorter};
  const uint32_t ones[] = {1, 1};
  pkv_batch batch = nullptr;
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_batch_begin(cache_, 2, step, ones, &batch));
  EXPECT_EQ(text_.size(), cached());
}

// A step for which nobody need be suspended.
void expect_no_victims(pkv_cache cache, const std::vector<pkv_session>& step) {
  const std::vector<uint32_t> ones(step.size(), 1);
  size_t count = 99;
  CHECK(pkv_batch_choose_victims(cache, step.size(), step.data(), ones.data(), 0, nullptr, &count));
  EXPECT_EQ(0u, count);
  const Batch works = begin(cache, step, ones);
}

// The fork, which has not run yet, takes a block only if its tail is copied. So no watermark stays
// free once the index let go of the tail.
TEST(VictimsOfForks, LeaveNoWatermarkForACopyThatIsSkipped) {
  const Cache cache = create(
      SmallCache{.groups = {{}}, .blocks = 4, .storage = PKV_STORAGE_EXTERNAL, .watermark = 1});
  const Session runs = open(cache);
  grow(cache, runs, 16);
  Session longer = open(cache);
  Batch batch = begin(cache, {longer}, {32});
  commit(batch, std::vector<int32_t>(32, 7));
  CHECK(pkv_session_trim(longer, 20));
  const Session forked = fork(longer);
  longer.close();
  EXPECT_EQ(1u, pool_stats_of(cache).free_blocks);
  expect_no_victims(cache, {runs, forked});
}

// What is missing is counted once pins have ended, as by begin().
TEST(VictimsOfPins, SayWhatIsMissingWithoutPins) {
  const Cache cache = create(
      SmallCache{.groups = {{}}, .blocks = 8, .storage = PKV_STORAGE_EXTERNAL, .max_pinned = 3});
  const std::vector<int32_t> text(48, 7);
  {
    const Session session = open(cache);
    Batch batch = begin(cache, {session}, {48});
    commit(batch, text);
  }
  hint(cache, PKV_HINT_PIN, text);
  Session held = open(cache);
  grow(cache, held, 48);
  const Snapshot snapshot = freeze(held);
  held.close();
  const Session session = open(cache);
  const pkv_session handle = session;
  const uint32_t tokens = 6 * 16;
  pkv_batch batch = nullptr;
  size_t count = 0;
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_batch_begin(cache, 1, &handle, &tokens, &batch));
  EXPECT_EQ(1u, pkv_last_error_details()->blocks_short);
  REFUSED(PKV_OUT_OF_BLOCKS,
          pkv_batch_choose_victims(cache, 1, &handle, &tokens, 0, nullptr, &count));
  EXPECT_EQ(1u, pkv_last_error_details()->blocks_short);
  EXPECT_EQ(3u, prefix_stats_of(cache).pinned_blocks);
}

// The tail of the fork has left the window of the session that it is of.
TEST(VictimsOfForks, CountNoCopyOfATailThatLeftAWindow) {
  const Cache cache = create(SmallCache{.groups = {{.blocks = 5}, {.window = 20, .blocks = 4}},
                                        .prefix = false,
                                        .storage = PKV_STORAGE_EXTERNAL});
  const Session longer = open(cache);
  grow(cache, longer, 32);
  const Session shorter = fork(longer);
  CHECK(pkv_session_trim(shorter, 20));
  grow(cache, longer, 16);
  grow(cache, longer, 12);
  expect_no_victims(cache, {longer, shorter});
}

TEST(VictimsOfForks, AreNoMoreThanTheStepNeeds) {
  const SmallGroup full{}, window{.window = 20}, states{.state_bytes = 64, .max_verify_tokens = 2};
  const SmallCache kinds[] = {
      {.name = "full", .groups = {full}, .blocks = 20, .storage = PKV_STORAGE_EXTERNAL},
      {.name = "without an index",
       .groups = {full},
       .blocks = 20,
       .prefix = false,
       .storage = PKV_STORAGE_EXTERNAL,
       .watermark = 2},
      {.name = "window", .groups = {full, window}, .blocks = 20, .storage = PKV_STORAGE_EXTERNAL},
      {.name = "states", .groups = {full, states}, .blocks = 24, .storage = PKV_STORAGE_EXTERNAL},
      {.name = "shared memory",
       .groups = {full, window},
       .blocks = 16,
       .shared = true,
       .storage = PKV_STORAGE_EXTERNAL,
       .watermark = 1},
      {.name = "window and watermark",
       .groups = {full, window},
       .blocks = 20,
       .storage = PKV_STORAGE_EXTERNAL,
       .watermark = 1},
      {.name = "states in shared memory",
       .groups = {full, states},
       .blocks = 16,
       .shared = true,
       .storage = PKV_STORAGE_EXTERNAL,
       .watermark = 1},
  };
  const uint64_t first = pkv::test::number_in("PKV_SEED", 1),
                 rounds = pkv::test::number_in("PKV_ROUNDS", 200);
  for (const SmallCache& kind : kinds) {
    uint64_t several = 0;
    for (uint64_t seed = first; seed < first + rounds && !HasFailure(); seed++) {
      SCOPED_TRACE(testing::Message() << kind.name << ", PKV_SEED=" << seed);
      several += Forks(kind, seed).suspend_victims() > 1;
    }
    EXPECT_GT(several + 5, rounds / 10) << kind.name;
  }
}

// Returns the bytes that are allocated while victims are chosen for a step of this many sessions,
// beside `others` more for each of them, some of which must be suspended. Blocks leave the windows
// of all.
uint64_t bytes_to_choose(uint64_t sessions, uint64_t others, bool groups_share_memory) {
  ModelConfig config = config_of(Model{1, 1, 1, 16, 0, PKV_F32, 32}, 5 * (1 + others) * sessions,
                                 PKV_STORAGE_EXTERNAL);
  if (groups_share_memory) share_memory(config);
  Cache cache = create(config);
  std::vector<Session> all;
  std::vector<pkv_session> step;
  for (uint64_t i = 0; i < (1 + others) * sessions; i++) {
    all.push_back(open(cache));
    grow(cache, all.back(), 80);
    if (i < sessions) step.push_back(all.back());
  }
  const std::vector<uint32_t> counts(sessions, 4 * 16);
  std::vector<pkv_session> victims(sessions);
  size_t count = 0;
  memory::begin_count();
  CHECK(pkv_batch_choose_victims(cache, sessions, step.data(), counts.data(), sessions,
                                 victims.data(), &count));
  const uint64_t bytes = memory::counted_bytes;
  EXPECT_GT(count, sessions / 8);
  return bytes;
}

TEST(VictimsCost, GrowsAsTheNumberOfSessions) {
  for (const bool groups_share_memory : {false, true})
    for (const uint64_t others : {0, 1}) {
      uint64_t before = bytes_to_choose(64, others, groups_share_memory);
      for (const uint64_t sessions : {128, 256, 512}) {
        const uint64_t bytes = bytes_to_choose(sessions, others, groups_share_memory);
        EXPECT_LT(bytes, before * 5 / 2) << sessions << " sessions and " << others
                                         << " others each, one memory " << groups_share_memory;
        before = bytes;
      }
    }
}

}  // namespace
}  // namespace cache_test::victims_test
