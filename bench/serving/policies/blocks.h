// A trace in blocks, and the blocks and time that hits save.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../trace.h"

namespace pkv::serve {

struct Text {
  std::vector<uint32_t> blocks;  // dense ids; equal ids have equal text before them, too
  size_t asked = 0;              // blocks of the prompt; the answer's follow, and are cached, too
  uint64_t tenant = 0;
  double expected_return = 0;

  std::span<const uint32_t> prompt() const { return std::span(blocks).first(asked); }
};

// The number of tokens before a token at which it takes twice as long, because of attention: that
// of a model of 8 billion weights with 32 layers of 4,096 dims, for which a token takes 2 * 8 *
// 10^9 operations, and 4 * 32 * 4096 more for each token that it attends to.
constexpr double attention_doubles_at = 30000;

// The blocks and the time that hits saved.
struct Saved {
  uint64_t blocks = 0;
  double time = 0;  // in units of the time of a first token

  // Adds the first `count` blocks of a text, of this many tokens each.
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
  Saved asked;       // if all prompts were found
  double quota = 0;  // see Trace
};

// Takes blocks of 512 tokens if all requests have hash ids, else of 64.
Blocks blocks_of_trace(const Trace& trace);

}  // namespace pkv::serve
