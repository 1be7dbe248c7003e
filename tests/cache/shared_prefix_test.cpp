// Sessions of a batch share leading blocks, which are read once for all of them. Each session gets
// the results that it would get alone, and the same bits for any number of threads.
#if __has_include(<tbb/global_control.h>)
#include <tbb/global_control.h>
#endif

#include "../support/cache.h"
#include "../support/rows.h"
#include "reference.h"

namespace cache_test::shared_prefix_test {
namespace {

// All sessions share the first 200 tokens, and every second one 200 more. Each has a tail of its
// own.
class Family {
 public:
  Family(const pkv_cache_config& config, const Model& model, size_t count)
      : model_(model), cache_(create(config)) {
    Session root = open(cache_);
    step(cache_, root, model_, 200, random_);
    Session branch = fork(root);
    step(cache_, branch, model_, 200, random_);
    Snapshot frozen_root = freeze(root), frozen_branch = freeze(branch);
    for (size_t i = 0; i < count; i++) {
      const bool forked = i % 3 != 0;
      if (i % 2 == 0)
        sessions_.push_back(forked ? fork(branch) : thaw(frozen_branch));
      else
        sessions_.push_back(forked ? fork(root) : thaw(frozen_root));
      if (i > 1)
        step(cache_, sessions_.back(), model_, static_cast<uint32_t>(i * 7 % 41 + 1), random_);
    }
  }

  // The outputs and log-sum-exps of one step, which is aborted.
  struct Result {
    Rows out;
    std::vector<float> lse;
    bool operator==(const Result&) const = default;
  };

  // Runs one step of some sessions. Their rows follow from the session's number.
  Result attend_step(const std::vector<size_t>& members, const std::vector<uint32_t>& counts,
                     bool compared, const Attention& attention) {
    std::vector<pkv_session> handles;
    KeysValues rows = rows_of(model_, 0);
    Rows q(0, model_.query_heads, model_.key_dim);
    for (size_t i = 0; i < members.size(); i++) {
      handles.push_back(sessions_[members[i]]);
      Random own(members[i] + 1000);
      KeysValues more = rows_of(model_, counts[i]);
      rows.k.append(more.k.fill(own));
      rows.v.append(more.v.fill(own));
      q.append(Rows(counts[i], model_.query_heads, model_.key_dim).fill(own));
    }
    Batch batch = begin(cache_, handles, counts);
    write(batch, 0, model_, rows);
    Result result{Rows(q.rows(), model_.query_heads, model_.values()),
                  std::vector<float>(q.rows() * model_.query_heads)};
    const AttentionParams params = attention.params(result.lse.data());
    attend(batch, 0, q, result.out, &params);
    size_t row = 0;
    for (size_t i = 0; i < members.size() && compared; row += counts[i++]) {
      const uint64_t length = length_of(handles[i]) + counts[i];
      const KeysValues all = materialize(handles[i], 0, model_, 0, length);
      EXPECT_LE(worst_error(q, result.out, row, counts[i], all, length, attention, result.lse), 1.0)
          << "session " << i << " of " << members.size();
    }
    return result;
  }

  Result attend_step(const std::vector<uint32_t>& counts, bool compared,
                     const Attention& attention) {
    std::vector<size_t> all;
    for (size_t i = 0; i < counts.size(); i++) all.push_back(i);
    return attend_step(all, counts, compared, attention);
  }

 private:
  const Model model_;
  Cache cache_;
  Random random_{51};
  std::vector<Session> sessions_;
};

struct Kind {
  const char* name;
  pkv_dtype keys, values;
  pkv_layout layout;
  uint32_t block_size;
  pkv_layer_kind kind;
};

class SharedPrefix : public testing::TestWithParam<Kind> {
 protected:
  ModelConfig config(uint32_t threads, pkv_isa isa = PKV_ISA_AUTO) const {
    ModelConfig config = config_of(model, 300);
    config.layout = GetParam().layout;
    config.block_size = GetParam().block_size;
    config.threads = threads;
    config.isa = isa;
    return config;
  }
  const Model model{1, 8, 2, 64, 48, GetParam().keys, 0, GetParam().values, 0, GetParam().kind};
};

// Several sessions have 1 to 3 new tokens. If many share a prefix, there are enough rows for matrix
// products; if each is alone, there are few.
TEST_P(SharedPrefix, EverySessionGetsWhatItGetsAlone) {
  for (const size_t count : {2u, 3u, 7u, 20u}) {
    Family family(config(2), model, count);
    for (const uint32_t tokens : {1u, 3u}) {
      const std::vector<uint32_t> counts(count, tokens);
      family.attend_step(counts, true, attention_of(model));
      for (size_t i = 0; i < std::min<size_t>(count, 3); i++)
        family.attend_step({i}, {tokens}, true, attention_of(model));
    }
  }
}

TEST_P(SharedPrefix, EveryInstructionSet) {
  for (const pkv_isa isa : supported_isas()) {
    SCOPED_TRACE(pkv_isa_name(isa));
    Family family(config(1, isa), model, 5);
    family.attend_step({1, 2, 1, 1, 1}, true, attention_of(model, isa));
  }
}

TEST_P(SharedPrefix, AnyNumberOfThreadsGivesTheSameBits) {
#if __has_include(<tbb/global_control.h>)
  // Usually, oneTBB limits the number of threads to that of CPUs.
  using tbb::global_control;
  const global_control no_limit(global_control::max_allowed_parallelism, 64);
#endif
  const std::vector<std::vector<uint32_t>> steps = {
      std::vector<uint32_t>(9, 1), {1, 3, 1, 2, 1, 15, 1, 1, 4}, {1, 1, 60, 1, 1, 1, 1, 0, 1}};
  std::vector<Family::Result> first;
  for (const uint32_t threads : {1u, 2u, 3u, 64u}) {
    Family family(config(threads), model, 9);
    for (size_t i = 0; i < steps.size(); i++) {
      Family::Result result = family.attend_step(steps[i], threads == 1, attention_of(model));
      if (threads == 1)
        first.push_back(std::move(result));
      else
        EXPECT_TRUE(first[i] == result) << threads << " threads, step " << i;
    }
  }
}

TEST_P(SharedPrefix, APromptBesideDecodes) {
  Family family(config(2), model, 8);
  family.attend_step({1, 1, 1, 50, 1, 1, 17, 1}, true, attention_of(model));
  family.attend_step({1, 90, 1}, true, attention_of(model));
}

// Slopes, caps and sinks go by each session's own positions. A sink logit counts once, however many
// parts are merged.
TEST_P(SharedPrefix, EveryFormOfAttention) {
  Family family(config(2), model, 6);
  Attention attention = attention_of(model);
  for (uint32_t head = 0; head < model.query_heads; head++) {
    attention.alibi_slopes.push_back(std::exp2(-static_cast<float>(head + 1)));
    attention.sink_logits.push_back(static_cast<float>(head) - 2);
  }
  attention.softcap = 1.5f;
  family.attend_step({1, 1, 2, 1, 3, 1}, true, attention);
  Attention full = attention_of(model);
  full.causal = false;
  family.attend_step({2, 2, 2, 3, 1, 1}, true, full);
  Attention window = attention_of(model);
  window.window = 220;  // This is the window of the call. The layer keeps everything.
  window.sinks = 5;
  family.attend_step({2, 1, 1, 1, 1, 1}, true, window);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, SharedPrefix,
    testing::Values(
        Kind{"packed_f32", PKV_F32, PKV_F32, PKV_LAYOUT_PACKED, 16, PKV_LAYERS_KV},
        Kind{"packed_bf16", PKV_BF16, PKV_BF16, PKV_LAYOUT_PACKED, 32, PKV_LAYERS_KV},
        Kind{"plain_f16", PKV_F16, PKV_F16, PKV_LAYOUT_PLAIN, 16, PKV_LAYERS_KV},
        Kind{"packed_int8_int4", PKV_INT8, PKV_INT4, PKV_LAYOUT_PACKED, 16, PKV_LAYERS_KV},
        Kind{"packed_fp8", PKV_FP8_E4M3, PKV_FP8_E5M2, PKV_LAYOUT_PACKED, 16, PKV_LAYERS_KV},
        Kind{"plain_int8", PKV_INT8, PKV_INT8, PKV_LAYOUT_PLAIN, 64, PKV_LAYERS_KV},
        Kind{"latent_bf16", PKV_BF16, PKV_BF16, PKV_LAYOUT_PACKED, 16, PKV_LAYERS_LATENT}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace cache_test::shared_prefix_test
