#include "world_play.h"

namespace world {
namespace {

class World : public testing::TestWithParam<Kind> {};

TEST_P(World, SessionsHoldWhatTheyComputedAndFilesBringItBack) {
  for (uint64_t seed = 1; seed <= 8; seed++) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    WorldPlay play(GetParam(), Random(seed));
    for (int i = 0; i < 200; i++) {
      SCOPED_TRACE(testing::Message() << "operation " << i);
      play.operate();
      if (HasFailure()) return;
    }
    play.finish();
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, World, testing::ValuesIn(kinds()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace world
