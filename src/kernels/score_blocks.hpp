// Scores blocks by the bounds of their keys.
#pragma once

#include "kernels/convert.hpp"

namespace pkv::kernels {

template <class Isa>
float score_block(const unsigned char* bounds, const ScoreTask& task) {
  using F = Floats<Isa>;
  using Bf16 = Elements<Isa, PKV_BF16>;
  F largest(0.0f), smallest(0.0f);
  for (uint32_t d = 0; d < task.dim; d += F::size) {
    largest = Isa::fma(F::load_unaligned(task.largest + d), Bf16::load(bounds + d * Bf16::bytes),
                       largest);
    smallest = Isa::fma(F::load_unaligned(task.smallest + d),
                        Bf16::load(bounds + (task.dim + d) * Bf16::bytes), smallest);
  }
  return Isa::sum_of(largest + smallest);
}

template <class Isa>
void score_blocks(const ScoreTask& task) {
  for (uint32_t i = 0; i < task.count; i++) {
    const uint16_t* const bounds = task.bounds + uint64_t{task.blocks[i]} * 2 * task.dim;
    const float score = score_block<Isa>(reinterpret_cast<const unsigned char*>(bounds), task);
    task.scores[i] = score == score ? score : __builtin_inff();
  }
}

}  // namespace pkv::kernels
