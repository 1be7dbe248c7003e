// Scores of the 16 tokens of a packed K tile for some query rows at once: K is loaded once for all of them, each token has
// a lane of its own, so nothing is summed across lanes.
#pragma once

#include "kernels/convert.hpp"

namespace pkv {

// How much of q one walk over the tiles works on, in floats: small enough to stay in the L2 cache beside its outputs.
inline constexpr uint32_t query_capacity = 32768;

// The query rows of some KV heads: rows [row_begin, row_end) of heads [head_begin, head_end).
struct Chunk {
  uint32_t head_begin, head_end;
  uint64_t row_begin, row_end;
};

// Two dims of K for 16 tokens. In the packed layout of dtype they begin at `from`.
template <class Isa, pkv_dtype dtype>
struct DimPair {
  static constexpr unsigned bytes = 2 * tile_tokens * Elements<Isa, dtype>::bytes;

  Floats<Isa> even[vectors_per_tile<Isa>], odd[vectors_per_tile<Isa>];

  explicit DimPair(const unsigned char* from) {
    constexpr unsigned vector_bytes = Floats<Isa>::size * Elements<Isa, dtype>::bytes;
#pragma GCC unroll 16
    for (unsigned n = 0; n < vectors_per_tile<Isa>; n++) {
      even[n] = Elements<Isa, dtype>::load(from + n * vector_bytes);
      odd[n] = Elements<Isa, dtype>::load(from + bytes / 2 + n * vector_bytes);
    }
  }
};

template <class Isa>
struct DimPair<Isa, PKV_BF16> {
  static constexpr unsigned bytes = 2 * tile_tokens * 2;

  Floats<Isa> even[vectors_per_tile<Isa>], odd[vectors_per_tile<Isa>];

  explicit DimPair(const unsigned char* from) {
#pragma GCC unroll 16
    for (unsigned n = 0; n < vectors_per_tile<Isa>; n++) {
      const Words<Isa> words = load_words<Isa>(from + n * Floats<Isa>::size * 4);
      even[n] = lower_bf16<Isa>(words);
      odd[n] = upper_bf16<Isa>(words);
    }
  }
};

// K tiles of dtype, and the queries in the form in which they are multiplied with them.
template <class Isa, pkv_dtype dtype>
struct Keys {
  using Row = const float*;
  static constexpr uint32_t capacity = query_capacity;

  struct Queries {
    Queries(const AttendTask& attend_task, const Chunk&) : task(attend_task) {}

    Row row(uint32_t head, uint64_t row) const {
      return task.q + (head * uint64_t{task.queries} * task.group + row) * task.kv.key_dim;
    }

    const AttendTask& task;
  };

  // scores[r][t] = q row r . K of token t. `next` is prefetched: the tile that is wanted after this one.
  template <unsigned rows>
  static void scores(Row q, uint32_t key_dim, const unsigned char* tile, const unsigned char* next,
                     float (*scores)[tile_tokens]) {
    constexpr unsigned vectors = vectors_per_tile<Isa>;
    // With one vector per row the adders' latency is hidden by a second sum per row.
    constexpr unsigned chains = vectors == 1 ? 2 : 1;
    using Pair = DimPair<Isa, dtype>;
    const size_t dims = key_dim;
    Floats<Isa> sum[chains][rows][vectors];
#pragma GCC unroll 16
    for (auto& chain : sum)
#pragma GCC unroll 16
      for (auto& row : chain)
#pragma GCC unroll 16
        for (auto& vector : row) vector = Floats<Isa>(0.0f);

    for (size_t d = 0; d < dims; d += 2, tile += Pair::bytes, next += Pair::bytes) {
      for (unsigned line = 0; line < Pair::bytes; line += 64) __builtin_prefetch(next + line);
      const Pair k(tile);
#pragma GCC unroll 16
      for (unsigned r = 0; r < rows; r++) {
        const Floats<Isa> q_even(q[r * dims + d]), q_odd(q[r * dims + d + 1]);
#pragma GCC unroll 16
        for (unsigned n = 0; n < vectors; n++) {
          sum[0][r][n] = Isa::fma(q_even, k.even[n], sum[0][r][n]);
          sum[chains - 1][r][n] = Isa::fma(q_odd, k.odd[n], sum[chains - 1][r][n]);
        }
      }
    }
#pragma GCC unroll 16
    for (unsigned r = 0; r < rows; r++) {
#pragma GCC unroll 16
      for (unsigned n = 0; n < vectors; n++) {
        const Floats<Isa> total = chains == 2 ? sum[0][r][n] + sum[chains - 1][r][n] : sum[0][r][n];
        total.store_aligned(scores[r] + n * Floats<Isa>::size);
      }
    }
  }
};

}  // namespace pkv
