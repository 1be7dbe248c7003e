// Random calls of attention, over the caller's memory and through caches, give what textbook
// attention gives.
#include <map>

#include "../support/rounds.h"
#include "../support/sanitizers.h"
#include "call_play.h"

namespace cache_test::attention_test {
namespace {

TEST(Attention, RandomCallsEqualTheReference) {
  const uint64_t first = pkv::test::number_in("PKV_SEED", 1),
                 rounds = pkv::test::number_in("PKV_ROUNDS", pkv::test::sanitized ? 200 : 600);
  std::map<std::string, uint64_t> counts;
  for (uint64_t seed = first; seed < first + rounds; seed++) {
    SCOPED_TRACE(testing::Message() << "PKV_SEED=" << seed);
    CallPlay play{Random(seed)};
    play.run();
    if (HasFailure()) return;
    for (const auto& [name, has] : play.features()) counts[name] += has;
  }
  if (rounds < 600) return;  // too few for the rare ones
  for (const auto& [name, count] : counts) EXPECT_GT(count, 0u) << "it never happened: " << name;
}

}  // namespace
}  // namespace cache_test::attention_test
