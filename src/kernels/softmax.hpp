// The online softmax: a row's scores of one tile become weights exp(score - max), and what the row has summed so far is
// brought down to the new maximum (Milakov and Gimelshein 2018).
#pragma once

#include "kernels/tokens.h"
#include "kernels/vectors.hpp"

namespace pkv {

// The tokens of a tile that a row sees.
struct TokenRange {
  uint32_t begin, end;
  bool whole_tile() const { return begin == 0 && end == tile_tokens; }
};

// What a row has gathered over the tiles so far; the rows after it follow in memory.
struct RowState {
  float* out;
  float* max;
  float* sum;
};

template <class Isa>
Floats<Isa> token_numbers() {
  alignas(64) static constexpr float numbers[tile_tokens] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return Floats<Isa>::load_aligned(numbers);
}

// Unseen tokens get the score -infinity, whatever lies in their slots.
template <class Isa>
void hide_unseen(TokenRange seen, Floats<Isa> (&scores)[vectors_per_tile<Isa>]) {
  for (unsigned n = 0; n < vectors_per_tile<Isa>; n++) {
    const Floats<Isa> token = token_numbers<Isa>() + Floats<Isa>(static_cast<float>(n * Floats<Isa>::size));
    const auto visible =
        token >= Floats<Isa>(static_cast<float>(seen.begin)) && token < Floats<Isa>(static_cast<float>(seen.end));
    scores[n] = xsimd::select(visible, scores[n], Floats<Isa>(-__builtin_inff()));
  }
}

template <class Isa>
float exp_of(float x) {
  alignas(64) float lanes[Floats<Isa>::size];
  xsimd::exp(Floats<Isa>(x)).store_aligned(lanes);
  return lanes[0];
}

// Brings what the row has gathered down to a new maximum: seldom needed after the first tiles.
template <class Isa>
[[gnu::noinline]] void lower_to(float max, float* out, float* row_max, float* row_sum, uint32_t value_dim) {
  const float keep = exp_of<Isa>(*row_max - max);
  for (uint32_t d = 0; d < value_dim; d += Floats<Isa>::size)
    (Floats<Isa>::load_unaligned(out + d) * Floats<Isa>(keep)).store_unaligned(out + d);
  *row_sum *= keep;
  *row_max = max;
}

// Scores of one tile for some rows in, weights out.
template <class Isa, unsigned rows>
void absorb(TokenRange seen, float (*tile)[tile_tokens], RowState first, uint32_t value_dim) {
  using F = Floats<Isa>;
  constexpr unsigned vectors = vectors_per_tile<Isa>;
#pragma GCC unroll 16
  for (unsigned r = 0; r < rows; r++) {
    F scores[vectors];
    for (unsigned n = 0; n < vectors; n++) scores[n] = F::load_aligned(tile[r] + n * F::size);
    if (!seen.whole_tile()) {
      hide_unseen<Isa>(seen, scores);
      for (unsigned n = 0; n < vectors; n++) scores[n].store_aligned(tile[r] + n * F::size);
    }
    F top = scores[0];
    for (unsigned n = 1; n < vectors; n++) top = xsimd::max(top, scores[n]);
    const float max = Isa::max_of(top);
    if (max > first.max[r]) lower_to<Isa>(max, first.out + r * value_dim, first.max + r, first.sum + r, value_dim);
  }
  // A loop of its own: the exponentials of all rows overlap.
#pragma GCC unroll 16
  for (unsigned r = 0; r < rows; r++) {
    const F shift(shift_of(first.max[r]));
    F total(0.0f);
    for (unsigned n = 0; n < vectors; n++) {
      const F weight = xsimd::exp(F::load_aligned(tile[r] + n * F::size) - shift);
      weight.store_aligned(tile[r] + n * F::size);
      total += weight;
    }
    first.sum[r] += Isa::sum_of(total);
  }
}

}  // namespace pkv
