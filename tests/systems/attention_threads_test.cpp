// Long sequences, which are cut into parts: the same bits for any number of threads, and the instruction set that was asked for.
#include "reference.h"
#include "rows.h"
#include "support.h"

namespace systems {
namespace {

constexpr uint32_t long_prompt = 9000;

// A long decode beside a prefill chunk and a short decode; the bits of all outputs.
Rows outputs_of(pkv_cache_config config, const Model& model, KeysValues* longest = nullptr, Rows* queries = nullptr) {
  Cache cache = create(config);
  Session longer = open(cache), chunk = open(cache), shorter = open(cache);
  Random random(11);
  const auto prompt = [&](pkv_session session, uint32_t tokens) { return std::move(step(cache, session, model, tokens, random)[0]); };
  KeysValues rows = prompt(longer, long_prompt);
  prompt(chunk, 1500);
  prompt(shorter, 70);
  const std::vector<uint32_t> counts = {1, 40, 1};
  Batch batch = begin(cache, {longer, chunk, shorter}, counts);
  Rows k(42, model.kv_heads, model.key_dim, model.dtype), v(42, model.kv_heads, model.values(), model.dtype);
  Rows q(42, model.query_heads, model.key_dim), out(42, model.query_heads, model.values());
  write(batch, 0, k.fill(random), v.fill(random));
  attend(batch, 0, q.fill(random), out);
  commit(batch);
  if (longest != nullptr) {
    rows.k.append(k.slice(0, 1));
    rows.v.append(v.slice(0, 1));
    *longest = std::move(rows);
    *queries = q;
  }
  return out;
}

struct Kind {
  const char* name;
  pkv_storage storage;
  pkv_layout layout;
};

class AttentionThreads : public testing::TestWithParam<Kind> {
 protected:
  const Model model{1, 16, 8, 128, 0, PKV_BF16};

  pkv_cache_config config(uint32_t threads, pkv_isa isa = PKV_ISA_AUTO) const {
    pkv_cache_config config = config_of(model, 720, GetParam().storage);
    config.layout = GetParam().layout;
    config.threads = threads;
    config.isa = isa;
    return config;
  }
};

TEST_P(AttentionThreads, AnyNumberOfThreadsGivesTheSameBits) {
  KeysValues longest;
  Rows queries;
  const Rows one = outputs_of(config(1), model, &longest, &queries);
  for (const uint32_t threads : {2u, 3u, 5u}) EXPECT_TRUE(one == outputs_of(config(threads), model)) << threads << " threads";
  Attention attention;
  attention.keys = model.dtype;
  EXPECT_LE(worst_error(queries, one, 0, 1, longest, long_prompt + 1, attention), 1.0);
}

TEST_P(AttentionThreads, EveryInstructionSetGivesTheSameBitsForAnyNumberOfThreads) {
  for (const pkv_isa isa : supported_isas()) {
    if (isa == PKV_ISA_SCALAR) continue;  // the same cuts, and far slower
    EXPECT_TRUE(outputs_of(config(1, isa), model) == outputs_of(config(3, isa), model)) << pkv_isa_name(isa);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, AttentionThreads,
                         testing::Values(Kind{"packed", PKV_STORAGE_PAGED, PKV_LAYOUT_PACKED},
                                         Kind{"plain", PKV_STORAGE_PAGED, PKV_LAYOUT_PLAIN},
                                         Kind{"contiguous", PKV_STORAGE_CONTIGUOUS, PKV_LAYOUT_PACKED}),
                         [](const auto& test) { return test.param.name; });

TEST(AttentionIsa, TheForcedOneIsTheOneThatRuns) {
  const std::vector<pkv_isa> supported = supported_isas();
  for (const pkv_isa isa : {PKV_ISA_SCALAR, PKV_ISA_SSE2, PKV_ISA_AVX2, PKV_ISA_AVX512, PKV_ISA_AVX512_VNNI, PKV_ISA_AVX512_BF16, PKV_ISA_NEON}) {
    pkv_cache_config config = config_of({}, 4);
    config.isa = isa;
    if (std::find(supported.begin(), supported.end(), isa) == supported.end()) {
      pkv_cache none = nullptr;
      REFUSED(PKV_UNSUPPORTED, pkv_cache_create(&config, &none));
      continue;
    }
    Cache cache = create(config);
    pkv_cache_info info{};
    info.struct_size = sizeof info;
    CHECK(pkv_cache_get_info(cache, &info));
    EXPECT_EQ(isa, info.isa);
  }
}

TEST(AttentionIsa, AutoTakesTheBest) {
  Cache cache = create(config_of({}, 4));
  pkv_cache_info info{};
  info.struct_size = sizeof info;
  CHECK(pkv_cache_get_info(cache, &info));
  EXPECT_EQ(supported_isas().back(), info.isa);
}

}  // namespace
}  // namespace systems
