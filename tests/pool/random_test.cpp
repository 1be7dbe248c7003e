#include <gtest/gtest.h>

#include "replay.h"

namespace pkv::memory {
namespace {

TEST(PoolRandom, AgreesWithTheModel) {
  for (uint64_t seed = 0; seed < 300; seed++) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Replay(Source(seed)).run(300);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace pkv::memory
