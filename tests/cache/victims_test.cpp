// The sessions that the library chooses for suspension so that the next step fits.
#include <algorithm>

#include "../support/cache.h"
#include "../support/memory.h"
#include "../support/rows.h"

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

  Cache cache_ = create(config_of(model, 8, PKV_STORAGE_NONE));
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
  EXPECT_EQ(0u, stats_of(cache_).free_blocks);
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
  ModelConfig config = config_of(model, 20, PKV_STORAGE_NONE);
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
  EXPECT_EQ(20u, stats_of(cache).free_blocks);
}

// Returns the bytes that are allocated while victims are chosen for a step of this many sessions,
// beside `others` more for each of them, some of which must be suspended. Blocks leave the windows
// of all.
uint64_t bytes_to_choose(uint64_t sessions, uint64_t others, bool groups_share_memory) {
  ModelConfig config =
      config_of(Model{1, 1, 1, 16, 0, PKV_F32, 32}, 5 * (1 + others) * sessions, PKV_STORAGE_NONE);
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
