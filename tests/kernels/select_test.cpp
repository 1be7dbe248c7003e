// The requested table is the one that runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/status.h"
#include "tables.h"

namespace pkv::kernels::test {
namespace {

constexpr pkv_isa unknown = pkv::test::unknown_isa;

// From the worst to the best. Each set includes those before it, but CPUs with AVX512 may lack
// AVX_VNNI.
#if defined(__aarch64__)
constexpr pkv_isa vector_sets[] = {PKV_ISA_NEON, PKV_ISA_NEON_DOT, PKV_ISA_NEON_BF16};
#else
constexpr pkv_isa vector_sets[] = {PKV_ISA_SSE2,   PKV_ISA_AVX2,        PKV_ISA_AVX_VNNI,
                                   PKV_ISA_AVX512, PKV_ISA_AVX512_VNNI, PKV_ISA_AVX512_BF16,
                                   PKV_ISA_AMX};
#endif

TEST(Select, TheForcedOneIsTheOneThatRuns) {
  int supported = 0;
  for (const pkv_isa isa : instruction_sets) {
    if (!isa_supported(isa)) continue;
    EXPECT_EQ(select(isa).isa, isa);
    supported++;
  }
  EXPECT_GE(supported, 2) << "scalar and the baseline's vectors are always there";
}

TEST(Select, EverySetIsTested) {
  std::string missing;
  for (const pkv_isa isa : vector_sets)
    if (!isa_supported(isa)) missing += std::string(missing.empty() ? "" : ", ") + isa_name(isa);
  if (!missing.empty()) GTEST_SKIP() << "this CPU lacks " << missing << ": NOT tested";
}

TEST(Select, AutoTakesTheBest) {
  const pkv_isa best = select(PKV_ISA_AUTO).isa;
  EXPECT_TRUE(isa_supported(PKV_ISA_AUTO));
  const auto* const at = std::find(std::begin(vector_sets), std::end(vector_sets), best);
  ASSERT_NE(at, std::end(vector_sets)) << isa_name(best);
  for (const auto* better = at + 1; better != std::end(vector_sets); better++) {
#if defined(__x86_64__)
    if (*better == PKV_ISA_AVX512_BF16 && __builtin_cpu_is("intel")) continue;  // slower there
#endif
    EXPECT_FALSE(isa_supported(*better)) << isa_name(*better);
  }
}

TEST(Select, RefusesWhatIsNotThere) {
  EXPECT_FALSE(isa_supported(unknown));
  try {
    select(unknown);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.status, PKV_UNSUPPORTED);
  }
}

TEST(Select, AnInstructionSetImpliesTheLesserOnes) {
  for (size_t i = 1; i < std::size(vector_sets); i++) {
    const size_t lesser = vector_sets[i - 1] == PKV_ISA_AVX_VNNI ? i - 2 : i - 1;
    EXPECT_LE(isa_supported(vector_sets[i]), isa_supported(vector_sets[lesser]))
        << isa_name(vector_sets[i]);
  }
}

TEST(Select, EachHasANameOfItsOwn) {
  for (const pkv_isa isa : instruction_sets) {
    EXPECT_STRNE(isa_name(isa), "unknown") << isa;
    for (const pkv_isa other : instruction_sets)
      EXPECT_EQ(isa == other, std::string(isa_name(isa)) == isa_name(other));
  }
  EXPECT_STREQ(isa_name(unknown), "unknown");
}

}  // namespace
}  // namespace pkv::kernels::test
