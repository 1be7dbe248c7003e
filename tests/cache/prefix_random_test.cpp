#include <atomic>
#include <mutex>
#include <thread>

#include "../support/rounds.h"
#include "prefix_play.h"

namespace cache_test::prefix_random_test {
namespace {

class PrefixRandom : public testing::TestWithParam<PrefixSetup> {};

TEST_P(PrefixRandom, SessionsHoldWhatTheirTextsSay) {
  const uint64_t seeds = pkv::test::number_in("PKV_ROUNDS", 10);
  uint64_t matched = 0, refused = 0, read_back = 0, corrupt = 0;
  for (uint64_t seed = 1; seed <= seeds; seed++) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    PrefixWorld world(GetParam());
    const Cache& cache = world.cache;
    PrefixPlay play(world, Random(seed), true);
    for (int i = 0; i < 150; i++) {
      SCOPED_TRACE(testing::Message() << "operation " << i);
      play.operate();
      play.compare();
      if (HasFailure()) return;
    }
    play.finish();
    CHECK(pkv_cache_validate(cache));
    EXPECT_EQ(stats_of(cache).used_blocks, stats_of(cache).evictable_blocks);
    CHECK(pkv_prefix_clear(cache, nullptr, PKV_ALL_SALTS));
    EXPECT_EQ(0u, stats_of(cache).used_blocks);
    if (!GetParam().shared) {
      EXPECT_EQ(2 * GetParam().blocks, stats_of(cache).free_blocks);
    }
    matched += play.matched();
    refused += play.refused();
    if (!GetParam().tier) continue;
    auto stats = made<pkv_store_stats>();
    CHECK(pkv_store_get_stats(world.cache, &stats));
    read_back += stats.read_items;
    corrupt += stats.corrupt_items;
  }
  EXPECT_GT(matched, seeds * 30);
  EXPECT_GE(refused, seeds / 10) << "the pool hardly ran out: too large to show anything";
  if (GetParam().tier) {
    EXPECT_GT(read_back, seeds * 3);
    EXPECT_GE(corrupt, seeds / 10);
  }
}

void play_from_threads(PrefixWorld& world, uint64_t round, std::atomic<uint64_t>& matched) {
  std::vector<std::thread> threads;
  for (uint64_t t = 1; t <= 4; t++)
    threads.emplace_back([&, t] {
      try {
        PrefixPlay play(world, Random(4 * round + t), false);
        for (int i = 0; i < 300; i++) {
          play.operate();
          play.compare();
        }
        play.finish();
        matched += play.matched();
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

// Threads publish, match and evict texts with common prefixes at the same time. How much they match
// depends on scheduling, so they continue until enough was matched, for at most twenty rounds.
TEST_P(PrefixRandom, AlsoFromManyThreads) {
  constexpr uint64_t enough = 1000;
  PrefixWorld world(GetParam());
  const Cache& cache = world.cache;
  std::atomic<uint64_t> matched{0};
  for (uint64_t round = 0; round < 20 && matched <= enough && !HasFailure(); round++)
    play_from_threads(world, round, matched);
  CHECK(pkv_cache_validate(cache));
  EXPECT_GT(matched, enough);
  CHECK(pkv_prefix_clear(cache, nullptr, PKV_ALL_SALTS));
  EXPECT_EQ(0u, stats_of(cache).used_blocks);
  if (!GetParam().shared) {
    EXPECT_EQ(2 * GetParam().blocks, stats_of(cache).free_blocks);
  }
}

INSTANTIATE_TEST_SUITE_P(Setups, PrefixRandom, testing::ValuesIn(prefix_setups),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace cache_test::prefix_random_test
