// Which table runs.
#include <gtest/gtest.h>

#include "base/status.h"
#include "tables.h"

namespace pkv::test {
namespace {

constexpr auto unknown = static_cast<pkv_isa>(PKV_ISA_NEON + 1);

TEST(Select, TheForcedOneIsTheOneThatRuns) {
  int supported = 0;
  for (int isa = PKV_ISA_SCALAR; isa <= PKV_ISA_NEON; isa++) {
    if (!isa_supported(static_cast<pkv_isa>(isa))) continue;
    EXPECT_EQ(select_kernels(static_cast<pkv_isa>(isa)).isa, isa);
    supported++;
  }
  EXPECT_GE(supported, 2) << "scalar and the baseline's vectors are always there";
}

TEST(Select, AutoTakesTheBest) {
  const pkv_isa best = select_kernels(PKV_ISA_AUTO).isa;
  EXPECT_TRUE(isa_supported(PKV_ISA_AUTO));
  for (int isa = best + 1; isa <= PKV_ISA_NEON; isa++) EXPECT_FALSE(isa_supported(static_cast<pkv_isa>(isa))) << isa;
}

TEST(Select, RefusesWhatIsNotThere) {
  EXPECT_FALSE(isa_supported(unknown));
  try {
    select_kernels(unknown);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.status, PKV_UNSUPPORTED);
  }
}

TEST(Select, AnInstructionSetImpliesTheLesserOnes) {
  EXPECT_LE(isa_supported(PKV_ISA_AVX512_BF16), isa_supported(PKV_ISA_AVX512));
  EXPECT_LE(isa_supported(PKV_ISA_AVX512), isa_supported(PKV_ISA_AVX2));
  EXPECT_LE(isa_supported(PKV_ISA_AVX2), isa_supported(PKV_ISA_SSE2));
}

}  // namespace
}  // namespace pkv::test
