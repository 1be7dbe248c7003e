#include "play.h"

namespace systems {
namespace {

class RandomOperations : public testing::TestWithParam<Setup> {};

TEST_P(RandomOperations, AgreeWithANaiveModel) {
  uint64_t refused = 0;
  for (uint64_t seed = 1; seed <= 20; seed++) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Play play(GetParam(), Random(seed));
    for (int i = 0; i < 250; i++) {
      SCOPED_TRACE(testing::Message() << "operation " << i);
      play.operate();
      play.compare();
      if (HasFatalFailure()) return;
    }
    play.finish();
    EXPECT_GE(play.committed(), 20u);
    if (HasFailure()) return;
    refused += play.refused();
  }
  EXPECT_GE(refused, 20u) << "the pool hardly ran out: too large to show anything";
}

INSTANTIATE_TEST_SUITE_P(Setups, RandomOperations,
                         testing::ValuesIn(setups),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace systems
