// A scheduler that preempts by closing sessions makes progress however few blocks there are.
#include <algorithm>

#include "../support/cache.h"

namespace cache_test::preemption_loop_test {
namespace {

constexpr uint32_t block_size = 16;

struct Request {
  uint32_t prompt, wanted;
  uint32_t made = 0;
  Session session;
};

// Makes one step of the scheduler: every running request gets a token. While blocks are short, the
// newest request gives its blocks back, and is computed again later. Returns the number of such
// requests.
uint32_t schedule(pkv_cache cache, std::vector<Request*>& running, std::vector<Request*>& waiting) {
  for (uint32_t preempted = 0;; preempted++) {
    std::vector<pkv_session> sessions;
    std::vector<uint32_t> counts;
    for (const Request* request : running) {
      sessions.push_back(request->session);
      counts.push_back(length_of(request->session) == 0 ? request->prompt + request->made : 1);
    }
    pkv_batch batch;
    const pkv_status status =
        pkv_batch_begin(cache, sessions.size(), sessions.data(), counts.data(), &batch);
    if (status == PKV_OK) {
      CHECK(pkv_batch_commit(batch, 0, nullptr));
      return preempted;
    }
    if (status != PKV_OUT_OF_BLOCKS) CHECK(status);
    EXPECT_GE(pkv_last_error_details()->blocks_short, 1u);
    running.back()->session.close();
    waiting.insert(waiting.begin(), running.back());
    running.pop_back();
  }
}

TEST(PreemptionLoop, MakesProgressUnderPressure) {
  // There are 192 slots for requests of 530 tokens in all.
  Cache cache = create(config_of({}, 12, PKV_STORAGE_NONE));
  std::vector<Request> requests;
  for (const auto& [prompt, wanted] :
       {std::pair(40u, 60u), {30u, 70u}, {60u, 50u}, {20u, 90u}, {50u, 60u}})
    requests.push_back({prompt, wanted, 0, {}});
  std::vector<Request*> running, waiting;
  for (Request& request : requests) waiting.push_back(&request);

  uint32_t preempted = 0, finished = 0;
  for (uint32_t steps = 0; finished < requests.size(); steps++) {
    ASSERT_LT(steps, 2000u) << "no progress";
    while (!waiting.empty() && pool_stats_of(cache).free_blocks * block_size >=
                                   waiting.front()->prompt + waiting.front()->made) {
      pkv_session session;
      if (pkv_session_open(cache, nullptr, &session) != PKV_OK) break;
      waiting.front()->session = Session(session);
      CHECK(pkv_session_reserve(session, waiting.front()->prompt + waiting.front()->made));
      running.push_back(waiting.front());
      waiting.erase(waiting.begin());
    }
    ASSERT_FALSE(running.empty());
    preempted += schedule(cache, running, waiting);
    CHECK(pkv_cache_validate(cache));
    for (Request* request : running) {
      if (++request->made < request->wanted) continue;
      EXPECT_EQ(request->prompt + request->wanted - 1, length_of(request->session));
      request->session.close();
      finished++;
    }
    std::erase_if(running, [](const Request* request) { return request->made == request->wanted; });
  }
  EXPECT_GE(preempted, 1u) << "the pool was too large to show anything";
  EXPECT_EQ(12u, pool_stats_of(cache).free_blocks);
}

}  // namespace
}  // namespace cache_test::preemption_loop_test
