// What reading only some blocks saves: decode steps and trees of speculative tokens whose queries
// read an eighth of the blocks, and steps in which half of the KV heads have a window. Each takes
// turns with the same step that reads all blocks.
#include <algorithm>
#include <vector>

#include "fixture.h"

namespace pkv::bench {

namespace {

void chosen_blocks(benchmark::State& state, const Geometry& geometry) {
  Filled filled(geometry);
  Step step(geometry, filled, 1);
  const pkv_chosen_blocks chosen = chosen_part(geometry, 8);
  auto params = made<pkv_attention_params>();
  params.chosen_blocks = &chosen;
  step.attend(&params);  // computes the bounds
  const auto [some, all] = in_turns(state, [&] { step.attend(&params); }, [&] { step.attend(); });
  const double tokens = geometry.sessions * static_cast<double>(state.iterations());
  state.counters["tokens/s"] = tokens / some;
  state.counters["tokens/s_all"] = tokens / all;
  state.counters["ratio"] = all / some;
}

constexpr uint32_t tree_tokens = 8;

// A tree of draft tokens, which choose together or each for itself.
void chosen_tree(benchmark::State& state, const Geometry& geometry, bool together) {
  Filled filled(geometry);
  Step step(geometry, filled, tree_tokens);
  std::vector<int32_t> parents;
  for (uint32_t session = 0; session < geometry.sessions; session++)
    for (int32_t token = 0; token < static_cast<int32_t>(tree_tokens); token++)
      parents.push_back((token + 1) / 2 - 1);
  auto mask = made<pkv_mask>();
  mask.kind = PKV_MASK_PARENTS, mask.data = parents.data();
  pkv_chosen_blocks chosen = chosen_part(geometry, 8);
  chosen.together = together;
  auto all = made<pkv_attention_params>();
  all.mask = &mask;
  auto some = all;
  some.chosen_blocks = &chosen;
  step.attend(&some);  // computes the bounds
  const auto [part, whole] =
      in_turns(state, [&] { step.attend(&some); }, [&] { step.attend(&all); });
  const double trees = geometry.sessions * static_cast<double>(state.iterations());
  state.counters["trees/s"] = trees / part;
  state.counters["trees/s_all"] = trees / whole;
  state.counters["ratio"] = whole / part;
}

// Every second KV head sees its last 1,024 tokens and the first 64.
void head_windows(benchmark::State& state, const Geometry& geometry) {
  Filled filled(geometry);
  Step step(geometry, filled, 1);
  std::vector<uint32_t> windows, sinks(geometry.kv_heads, 64);
  for (uint32_t head = 0; head < geometry.kv_heads; head++)
    windows.push_back(head % 2 == 0 ? 1024 : 0);
  auto params = made<pkv_attention_params>();
  params.head_windows = windows.data();
  params.head_sinks = sinks.data();
  const auto [some, all] = in_turns(state, [&] { step.attend(&params); }, [&] { step.attend(); });
  const double tokens = geometry.sessions * static_cast<double>(state.iterations());
  state.counters["tokens/s"] = tokens / some;
  state.counters["tokens/s_all"] = tokens / all;
  state.counters["ratio"] = all / some;
}

void add(const char* name, const Geometry& geometry, const auto& benchmark, auto... more) {
  benchmark::RegisterBenchmark(
      (std::string(name) + "/" + dtype_name(geometry.dtype) + "/block" +
       std::to_string(geometry.block_size) + "/tokens" + std::to_string(geometry.tokens))
          .c_str(),
      benchmark, geometry, more...)
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
}

}  // namespace

void register_chosen_blocks() {
  for (const pkv_dtype dtype : {PKV_BF16, PKV_INT8})
    for (const uint32_t block_size : {16u, 32u, 64u})
      for (const uint32_t tokens : {8192u, 32768u, 131072u}) {
        if (short_run() && (block_size != 32 || tokens != 32768)) continue;
        Geometry geometry;
        geometry.dtype = dtype;
        geometry.block_size = block_size;
        geometry.tokens = tokens;
        geometry.sessions = std::max(1u, 65536 / tokens);
        add("chosen_blocks", geometry, chosen_blocks);
        if (block_size != 32 || tokens != 32768) continue;
        add("chosen_tree_together", geometry, chosen_tree, true);
        add("chosen_tree", geometry, chosen_tree, false);
        add("head_windows", geometry, head_windows);
      }
}

}  // namespace pkv::bench
