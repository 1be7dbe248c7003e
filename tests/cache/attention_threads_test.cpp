// Long sequences are cut into parts that several threads compute. The results have the same bits
// for any number of threads, and the requested instruction set is the one that runs.
#if __has_include(<tbb/global_control.h>)
#include <tbb/global_control.h>
#endif

#include <algorithm>

#include "../support/cache.h"
#include "../support/rows.h"
#include "memory_kinds.h"
#include "reference.h"

namespace cache_test::attention_threads_test {
namespace {

constexpr uint32_t long_prompt = 9000;
const Model model{1, 16, 8, 128, 0, PKV_BF16};

// The rows of three sessions: a long decode beside a prefill chunk and a short decode. The rows are
// made once, because making them takes longer than the test itself.
struct Texts {
  std::vector<uint32_t> prompts = {long_prompt, 1500, 70}, steps = {1, 40, 1};
  std::vector<KeysValues> before;
  KeysValues stepped = rows_of(model, 42);
  Rows queries{42, model.query_heads, model.key_dim};

  Texts() {
    Random random(11);
    for (const uint32_t tokens : prompts) {
      before.push_back(rows_of(model, tokens));
      before.back().k.fill(random);
      before.back().v.fill(random);
    }
    stepped.k.fill(random);
    stepped.v.fill(random);
    queries.fill(random);
  }
};

Texts& texts() {
  static Texts instance;
  return instance;
}

// Returns all outputs, to be compared bit for bit.
Rows outputs_of(const pkv_cache_config& config) {
  Cache cache = create(config);
  std::vector<Session> sessions;
  std::vector<pkv_session> handles;
  for (KeysValues& rows : texts().before) {
    handles.push_back(sessions.emplace_back(open(cache)));
    Batch prompt = begin(cache, {handles.back()}, {static_cast<uint32_t>(rows.k.rows())});
    write(prompt, 0, model, rows);
    commit(prompt);
  }
  Batch batch = begin(cache, handles, texts().steps);
  Rows out(42, model.query_heads, model.values());
  write(batch, 0, model, texts().stepped);
  attend(batch, 0, texts().queries, out);
  commit(batch);
  return out;
}

class AttentionThreads : public testing::TestWithParam<MemoryKind> {
 protected:
  ModelConfig config(uint32_t threads, pkv_isa isa = PKV_ISA_AUTO) const {
    ModelConfig config = config_of(model, 720);
    config.layout = GetParam().layout;
    config.memory_directory = GetParam().directory;
    config.threads = threads;
    config.isa = isa;
    return config;
  }
};

TEST_P(AttentionThreads, AnyNumberOfThreadsGivesTheSameBits) {
#if __has_include(<tbb/global_control.h>)
  // Usually, oneTBB limits the number of threads to that of CPUs.
  using tbb::global_control;
  const global_control no_limit(global_control::max_allowed_parallelism, 64);
#endif
  const Rows one = outputs_of(config(1));
  for (const uint32_t threads : {2u, 3u, 8u, 64u})
    EXPECT_TRUE(one == outputs_of(config(threads))) << threads << " threads";
  KeysValues longest = texts().before[0];
  longest.k.append(texts().stepped.k.slice(0, 1));
  longest.v.append(texts().stepped.v.slice(0, 1));
  Attention attention{.keys = model.dtype};
  EXPECT_LE(worst_error(texts().queries, one, 0, 1, longest, long_prompt + 1, attention), 1.0);
}

TEST_P(AttentionThreads, EveryInstructionSetGivesTheSameBitsForAnyNumberOfThreads) {
  for (const pkv_isa isa : supported_isas()) {
    // The scalar kernels are cut at the same places and are far slower.
    if (isa == PKV_ISA_SCALAR) continue;
    EXPECT_TRUE(outputs_of(config(1, isa)) == outputs_of(config(3, isa))) << pkv_isa_name(isa);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, AttentionThreads, testing::ValuesIn(memory_kinds), kind_name);

TEST(AttentionIsa, TheForcedOneIsTheOneThatRuns) {
  const std::vector<pkv_isa> supported = supported_isas();
  for (const pkv_isa isa : pkv::test::instruction_sets) {
    ModelConfig config = config_of({}, 4);
    config.isa = isa;
    if (std::find(supported.begin(), supported.end(), isa) == supported.end()) {
      pkv_cache none = nullptr;
      REFUSED(PKV_UNSUPPORTED, pkv_cache_create(&config, &none));
      continue;
    }
    Cache cache = create(config);
    auto info = made<pkv_cache_info>();
    CHECK(pkv_cache_get_info(cache, &info));
    EXPECT_EQ(isa, info.isa);
  }
}

// tests/kernels/select_test.cpp tests which one it is.
TEST(AttentionIsa, AutoIsOneThatTheProcessorHas) {
  Cache cache = create(config_of({}, 4));
  auto info = made<pkv_cache_info>();
  CHECK(pkv_cache_get_info(cache, &info));
  const std::vector<pkv_isa> supported = supported_isas();
  EXPECT_NE(std::find(supported.begin(), supported.end(), info.isa), supported.end()) << info.isa;
}

}  // namespace
}  // namespace cache_test::attention_threads_test
