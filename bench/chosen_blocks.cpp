// Compares steps in which queries read only some blocks with the same steps that read all: decode
// steps and trees of speculative tokens that read an eighth of the blocks, prompts that read a
// quarter, and steps in which half of the KV heads have a window.
#include <algorithm>
#include <cmath>
#include <vector>

#include "fixture.h"

namespace pkv::bench {

namespace {

void compare(benchmark::State& state, const Geometry& geometry, uint32_t new_tokens,
             const pkv_attention_params& some, const pkv_attention_params& all) {
  Filled filled(geometry);
  Step step(geometry, filled, new_tokens);
  step.attend(&some);  // computes the bounds
  const auto [part, whole] =
      in_turns(state, [&] { step.attend(&some); }, [&] { step.attend(&all); });
  const bool trees = new_tokens > 1;
  report(state, trees ? "trees/s" : "tokens/s", trees ? "trees/s_all" : "tokens/s_all",
         geometry.sessions, part, whole);
}

void chosen_blocks(benchmark::State& state, const Geometry& geometry) {
  const pkv_chosen_blocks chosen = chosen_part(geometry, 8);
  const auto all = made<pkv_attention_params>();
  auto some = all;
  some.chosen_blocks = &chosen;
  compare(state, geometry, 1, some, all);
}

// A tree of draft tokens, which choose together or each for itself.
void chosen_tree(benchmark::State& state, const Geometry& geometry, bool together) {
  constexpr int32_t tree_tokens = 8;
  std::vector<int32_t> parents;
  for (uint32_t session = 0; session < geometry.sessions; session++)
    for (int32_t token = 0; token < tree_tokens; token++) parents.push_back((token + 1) / 2 - 1);
  auto mask = made<pkv_mask>();
  mask.kind = PKV_MASK_TREE_PARENTS, mask.data = parents.data();
  pkv_chosen_blocks chosen = chosen_part(geometry, 8);
  chosen.tokens_per_choice = together ? UINT32_MAX : 1;
  auto all = made<pkv_attention_params>();
  all.mask = &mask;
  auto some = all;
  some.chosen_blocks = &chosen;
  compare(state, geometry, tree_tokens, some, all);
}

// A prompt without a context, in which 64 tokens choose together.
void chosen_prompt(benchmark::State& state, Geometry geometry) {
  const uint32_t blocks = geometry.tokens / geometry.block_size;
  const uint32_t tokens = std::exchange(geometry.tokens, 0);
  geometry.extra = tokens;
  Filled filled(geometry, false);
  Step step(geometry, filled, tokens);
  auto chosen = made<pkv_chosen_blocks>();
  chosen.tokens_per_choice = 64;
  chosen.first_blocks = chosen.last_blocks = 1;
  // Each choice reads at most this share of all blocks; the first ones see fewer. So a prompt reads
  // a quarter of what it reads without a choice.
  const double share = 1 - std::sqrt(0.75);
  chosen.top_blocks =
      static_cast<uint32_t>(share * blocks) - 2 - chosen.tokens_per_choice / geometry.block_size;
  const auto all = made<pkv_attention_params>();
  auto some = all;
  some.chosen_blocks = &chosen;
  // One turn takes so long that few of them are enough.
  double part = INFINITY, whole = INFINITY;
  for (auto _ : state) {
    part = std::min(part, seconds_of([&] { step.attend(&some); }));
    whole = std::min(whole, seconds_of([&] { step.attend(&all); }));
  }
  report(state, "tokens/s", "tokens/s_all", tokens, part, whole);
}

// Every second KV head sees its last 1,024 tokens and the first 64.
void kv_head_windows(benchmark::State& state, const Geometry& geometry) {
  std::vector<uint32_t> windows, sinks(geometry.kv_heads, 64);
  for (uint32_t head = 0; head < geometry.kv_heads; head++)
    windows.push_back(head % 2 == 0 ? 1024 : 0);
  const auto all = made<pkv_attention_params>();
  auto some = all;
  some.kv_head_windows = windows.data();
  some.kv_head_sink_tokens = sinks.data();
  compare(state, geometry, 1, some, all);
}

}  // namespace

void register_chosen_blocks() {
  for (const pkv_dtype dtype : {PKV_BF16, PKV_INT8})
    for (const uint32_t block_size : {16u, 32u, 64u})
      for (const uint32_t tokens : {8192u, 32768u, 131072u}) {
        const bool usual = block_size == 32 && tokens == 32768;
        if (short_run() && !usual) continue;
        const Geometry geometry{.dtype = dtype,
                                .sessions = std::max(1u, 65536 / tokens),
                                .tokens = tokens,
                                .block_size = block_size};
        const std::string shape = std::string("/") + dtype_name(dtype) + "/block" +
                                  std::to_string(block_size) + "/tokens" + std::to_string(tokens);
        add("chosen_blocks" + shape, chosen_blocks, geometry);
        if (!usual) continue;
        add("chosen_tree_together" + shape, chosen_tree, geometry, true);
        add("chosen_tree" + shape, chosen_tree, geometry, false);
        add("kv_head_windows" + shape, kv_head_windows, geometry);
      }
  for (const pkv_dtype dtype : {PKV_F32, PKV_BF16, PKV_INT8})
    for (const uint32_t block_size : {16u, 32u, 64u})
      for (const uint32_t tokens : {8192u, 32768u}) {
        if (short_run() && (block_size != 32 || tokens != 8192)) continue;
        const Geometry geometry{.dtype = dtype,
                                .kv_heads = 2,
                                .sessions = 1,
                                .tokens = tokens,
                                .block_size = block_size};
        add(std::string("chosen_prompt/") + dtype_name(dtype) + "/block" +
                std::to_string(block_size) + "/tokens" + std::to_string(tokens),
            chosen_prompt, geometry)
            ->Iterations(3);
      }
}

}  // namespace pkv::bench
