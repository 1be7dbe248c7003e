// What reading some of the blocks saves: decode steps whose queries read an eighth of the blocks,
// and in turns the same that read all.
#include <algorithm>

#include "fixture.h"

namespace pkv::bench {

namespace {

void chosen_blocks(benchmark::State& state, const Geometry& geometry) {
  Filled filled(geometry);
  Step step(geometry, filled, 1);
  pkv_attention_params params;
  check(pkv_attention_params_init(&params, sizeof params));
  params.top_blocks =
      geometry.tokens / geometry.block_size / 8 - params.first_blocks - params.last_blocks;
  step.attend(&params);  // computes the bounds
  const auto [some, all] = in_turns(state, [&] { step.attend(&params); }, [&] { step.attend(); });
  const double tokens = geometry.sessions * static_cast<double>(state.iterations());
  state.counters["tokens/s"] = tokens / some;
  state.counters["tokens/s_all"] = tokens / all;
  state.counters["ratio"] = all / some;
}

void add(const Geometry& geometry) {
  benchmark::RegisterBenchmark(
      ("chosen_blocks/" + std::string(dtype_name(geometry.dtype)) + "/block" +
       std::to_string(geometry.block_size) + "/tokens" + std::to_string(geometry.tokens))
          .c_str(),
      chosen_blocks, geometry)
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
        add(geometry);
      }
}

}  // namespace pkv::bench
