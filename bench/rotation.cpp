// What a rotation costs: the rows of a step are written and attended, in turns in a cache with a
// rotation and in one without.
#include <algorithm>

#include "fixture.h"

namespace pkv::bench {

namespace {

double seconds_of(Step& step) {
  const auto begin = Clock::now();
  step.write();
  step.attend();
  return seconds_since(begin);
}

// The shortest times are compared: a cost of microseconds would disappear in the mean of steps that
// other programs interrupt.
void rotation(benchmark::State& state, const Geometry& geometry, uint32_t new_tokens) {
  Geometry plain = geometry;
  plain.rotation = PKV_ROTATION_NONE;
  Filled filled(geometry), plain_filled(plain);
  Step step(geometry, filled, new_tokens), plain_step(plain, plain_filled, new_tokens);
  double ours = 1e9, theirs = 1e9;
  for (auto _ : state) {
    ours = std::min(ours, seconds_of(step));
    theirs = std::min(theirs, seconds_of(plain_step));
  }
  state.counters["us"] = ours * 1e6;
  state.counters["us_without"] = theirs * 1e6;
  state.counters["ratio"] = theirs / ours;
}

void add(const std::string& name, const Geometry& geometry, uint32_t new_tokens) {
  benchmark::RegisterBenchmark(("rotation/" + name + "/" + dtype_name(geometry.dtype)).c_str(),
                               rotation, geometry, new_tokens)
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
}

}  // namespace

void register_rotation() {
  for (const pkv_dtype dtype : {PKV_BF16, PKV_INT8, PKV_INT4}) {
    Geometry geometry;
    geometry.dtype = dtype;
    geometry.rotation = PKV_ROTATION_HADAMARD;
    for (const uint32_t tokens : {512u, 4096u}) {
      geometry.tokens = tokens;
      add("decode/tokens" + std::to_string(tokens), geometry, 1);
    }
    geometry.sessions = 1;
    geometry.tokens = 3584;
    geometry.extra = 512;
    add("prompt", geometry, 512);
  }
}

}  // namespace pkv::bench
