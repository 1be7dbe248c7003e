// Threads publish, match and evict texts with common prefixes in one cache at the same time.
#include <atomic>
#include <thread>

#include "world_play.h"

namespace world {
namespace {

class CrowdedWorld : public testing::TestWithParam<SmallCache> {
 protected:
  void play_from_threads(uint64_t round) {
    std::vector<std::thread> threads;
    for (uint64_t t = 1; t <= 4; t++)
      threads.emplace_back([&, t] {
        WorldPlay play(world_, Random(4 * round + t));
        for (int i = 0; i < 250; i++) play.operate();
        play.finish();
        matched_ += play.matched();
      });
    for (std::thread& thread : threads) thread.join();
  }
  const std::shared_ptr<Shared> world_ = std::make_shared<Shared>(GetParam(), false);
  std::atomic<uint64_t> matched_{0};
};

// How much threads match depends on scheduling, so they continue until it is enough, for at most
// twenty rounds.
TEST_P(CrowdedWorld, SessionsOfManyThreadsHoldWhatTheyComputed) {
  constexpr uint64_t enough = 1000;
  for (uint64_t round = 0; round < 20 && matched_ <= enough && !HasFailure(); round++)
    play_from_threads(round);
  EXPECT_GT(matched_, enough);
  const PrefixStats figures = prefix_stats_of(world_->here->cache);
  EXPECT_EQ(matched_, figures.matched_tokens);
  EXPECT_GT(figures.evicted_blocks, 0u);
  WorldPlay::expect_empty(*world_);
}

INSTANTIATE_TEST_SUITE_P(Kinds, CrowdedWorld, testing::ValuesIn(kinds_that(is_crowded)),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace world
