// Attention over the caller's memory: random calls give what textbook attention gives.
#include "../support/rounds.h"
#include "stateless_play.h"

namespace cache_test::stateless_test {
namespace {

TEST(Stateless, RandomCallsEqualTheReference) {
  const uint64_t first = pkv::test::first_seed(), rounds = pkv::test::rounds(200);
  for (uint64_t seed = first; seed < first + rounds; seed++) {
    SCOPED_TRACE(testing::Message() << "PKV_SEED=" << seed);
    StatelessPlay(Random(seed)).run();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace cache_test::stateless_test
