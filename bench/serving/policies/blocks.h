// A trace in blocks, and what hits save.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../trace.h"

namespace pkv::serve {

struct Text {
  std::vector<uint32_t> blocks;  // dense ids; equal ids have equal text before them, too
  size_t asked = 0;              // the prompt's; the rest is the answer, which is cached as well
  uint64_t tenant = 0;
  double expected_return = 0;

  std::span<const uint32_t> prompt() const { return std::span(blocks).first(asked); }
};

// Computing a token takes as long again for attention where it has this many tokens before it: that
// of a model of 8 billion weights with 32 layers of 4,096 dims, for which a token takes
// 2 * 8 * 10^9 operations, and 4 * 32 * 4096 more for each token that it attends to.
constexpr double attention_doubles_at = 30000;

// What hits saved.
struct Saved {
  uint64_t blocks = 0;
  double time = 0;  // in the time of a token that has none before it

  // The first `count` blocks of a text, of this many tokens each.
  void add(size_t count, uint32_t tokens) {
    const double n = static_cast<double>(count) * tokens;
    blocks += count;
    time += n * (1 + n / (2 * attention_doubles_at));
  }
};

// A block's id stands for its text and all before it.
struct Blocks {
  uint32_t tokens;
  std::vector<Text> texts;
  size_t distinct = 0;
  Saved asked;       // all there is
  double quota = 0;  // see Trace
};

// In blocks of 512 tokens where all requests have hash ids, else of 64.
Blocks blocks_of_trace(const Trace& trace);

}  // namespace pkv::serve
