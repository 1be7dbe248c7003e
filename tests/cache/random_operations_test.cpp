#include "../support/rounds.h"
#include "play.h"

namespace cache_test::random_operations_test {
namespace {

class RandomOperations : public testing::TestWithParam<Setup> {};

TEST_P(RandomOperations, AgreeWithANaiveModel) {
  const uint64_t seeds = pkv::test::number_in("PKV_ROUNDS", 8);
  uint64_t refused = 0, no_memory = 0;
  for (uint64_t seed = 1; seed <= seeds; seed++) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Play play(GetParam(), Source(seed), Source(~seed));
    for (int i = 0; i < 250; i++) {
      SCOPED_TRACE(testing::Message() << "operation " << i);
      play.operate();
      play.compare();
      if (HasFatalFailure()) return;
    }
    play.finish();
    EXPECT_GE(play.counts().grown, 20u);
    if (HasFailure()) return;
    refused += play.counts().refused;
    no_memory += play.counts().no_memory;
  }
  EXPECT_GE(refused, seeds) << "the pool hardly ran out: too large to show anything";
  EXPECT_GE(no_memory, seeds / 2) << "memory was hardly ever refused";
}

INSTANTIATE_TEST_SUITE_P(Setups, RandomOperations, testing::ValuesIn(setups),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace cache_test::random_operations_test
