#include "play.h"

namespace systems {
namespace {

class RandomOperations : public testing::TestWithParam<Setup> {};

TEST_P(RandomOperations, AgreeWithANaiveModel) {
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
    EXPECT_GE(play.refused(), 1u) << "the pool never ran out: too large to show anything";
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Setups, RandomOperations,
                         testing::ValuesIn(setups),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace systems
