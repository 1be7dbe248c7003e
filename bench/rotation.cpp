// Measures what a rotation costs: the rows of a step are written and attended, in turns in a cache
// with a rotation and in one without.
#include "fixture.h"

namespace pkv::bench {

namespace {

void rotation(benchmark::State& state, const Geometry& geometry, uint32_t new_tokens) {
  Geometry plain = geometry;
  plain.rotation = PKV_ROTATION_NONE;
  Filled filled(geometry), plain_filled(plain);
  Step step(geometry, filled, new_tokens), plain_step(plain, plain_filled, new_tokens);
  const auto run = [](Step& one) {
    one.write();
    one.attend();
  };
  const auto [ours, theirs] = in_turns(state, [&] { run(step); }, [&] { run(plain_step); });
  state.counters["us"] = ours * 1e6;
  state.counters["us_without"] = theirs * 1e6;
  state.counters["ratio"] = theirs / ours;
}

}  // namespace

void register_rotation() {
  for (const pkv_dtype dtype : {PKV_BF16, PKV_INT8, PKV_INT4}) {
    const std::string name = std::string("/") + dtype_name(dtype);
    Geometry geometry{.dtype = dtype, .rotation = PKV_ROTATION_HADAMARD};
    for (const uint32_t tokens : {512u, 4096u}) {
      geometry.tokens = tokens;
      add("rotation/decode/tokens" + std::to_string(tokens) + name, rotation, geometry, 1);
    }
    geometry.sessions = 1;
    geometry.tokens = 3584;
    geometry.extra = 512;
    add("rotation/prompt" + name, rotation, geometry, 512);
  }
}

}  // namespace pkv::bench
