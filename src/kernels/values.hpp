// V of a packed tile: out[row] += the sum of weight[row][token] * V[token] over its 16 tokens. V is
// loaded once for all rows of a register tile. All 16 tokens must exist: if a row sees only some
// of them, add_seen() adds them.
//
//   ValueTile<Isa, dtype>
//     max_tiles    how many tiles are worth taking in one step
//     linear_dims  with up to this many dims one row is multiplied in the order of memory
//     accumulate<rows, tiles>(at, next, weights, dim, out)
//                  weights of row r and tile i are at weights[i * rows + r]
//                  rows of out are dim floats apart
//     unpack(tile, dim, to, token_stride, panel_stride)
//                  writes fp32: dims [16 p, 16 p + 16) of token t
//                  go to to + p * panel_stride + t * token_stride
//
// This file has the floating-point dtypes, integer_values.hpp the others.
#pragma once

#include "kernels/keys.hpp"

namespace pkv::kernels {

// Loads vectors of dims of V from a tile.
template <class Isa, pkv_dtype dtype>
struct ValueRows {
  // True if loading two tokens at once is best.
  static constexpr bool in_pairs = dtype == PKV_BF16 || through_f16<Isa, dtype>;

  const unsigned char* tile;
  uint32_t dim;

  // The vector of dims from d on of token t.
  Floats<Isa> load(uint32_t t, uint32_t d) const {
    return Elements<Isa, dtype>::load(tile + (size_t{t} * dim + d) * Elements<Isa, dtype>::bytes);
  }

  // The same for tokens t and t + 1; t is even.
  void load_two(uint32_t t, uint32_t d, Floats<Isa>* first, Floats<Isa>* second) const {
    if constexpr (dtype == PKV_BF16) {
      const Words<Isa> words = load_words<Isa>(tile + (size_t{t} / 2 * dim + d) * 4);
      *first = lower_bf16<Isa>(words);
      *second = upper_bf16<Isa>(words);
    } else if constexpr (through_f16<Isa, dtype>) {
      const unsigned char* const at = tile + size_t{t} * dim + d;
      load_two_fp8<Isa, dtype>(at, at + dim, first, second);
    } else {
      *first = load(t, d);
      *second = load(t + 1, d);
    }
  }
};

template <class Isa, pkv_dtype dtype>
struct FloatValueTile {
  static constexpr unsigned max_tiles = 1;
  // There are enough registers for 8 vectors of sums.
  static constexpr unsigned linear_dims = is_fp8(dtype) ? 0 : 8 * Floats<Isa>::size;

  template <unsigned rows, unsigned tiles>
  static void accumulate(TilePointers at, TilePointers next, const ScoreRow* weights, uint32_t dim,
                         float* out) {
    static_assert(tiles == 1);
    alignas(64) float scaled[rows][tile_tokens];
    if constexpr (unit<Isa, dtype> != 1) weights = times_unit<rows>(weights, scaled);
    const ValueRows<Isa, dtype> v{*at, dim};
    const unsigned char* const lines = *next;
    add<rows, most_vectors<rows>>(v, lines, weights, 0, out);
  }

  static void unpack(const unsigned char* tile, uint32_t dim, float* to, size_t token_stride,
                     size_t panel_stride) {
    const ValueRows<Isa, dtype> v{tile, dim};
    const Floats<Isa> scale(unit<Isa, dtype>);
    for (uint32_t d = 0; d < dim; d += tile_tokens, to += panel_stride) {
      for (uint32_t t = 0; t < tile_tokens; t += 2) {
        for (unsigned n = 0; n < tile_tokens; n += Floats<Isa>::size) {
          Floats<Isa> first, second;
          v.load_two(t, d + n, &first, &second);
          if constexpr (unit<Isa, dtype> != 1) first *= scale, second *= scale;
          first.store_unaligned(to + t * token_stride + n);
          second.store_unaligned(to + (t + 1) * token_stride + n);
        }
      }
    }
  }

 private:
  // The vectors of dims of a register tile, which share the loads of weights.
  template <unsigned rows>
  static constexpr unsigned most_vectors = rows == 1 ? 8 : 2 * Isa::direct_rows / rows;

  // Adds the dims from d on, `vectors` vectors at a time as long as there are as many.
  template <unsigned rows, unsigned vectors>
  static void add(const ValueRows<Isa, dtype>& v, const unsigned char* next,
                  const ScoreRow* weights, uint32_t d, float* out) {
    constexpr unsigned dims = vectors * Floats<Isa>::size;
    for (; d + dims <= v.dim; d += dims) add_dims<rows, vectors>(v, next, weights, d, out);
    if constexpr (dims > tile_tokens)
      if (d < v.dim) add<rows, vectors / 2>(v, next, weights, d, out);
  }

  // The order of a row's additions does not depend on `rows` and `vectors`.
  template <unsigned rows, unsigned vectors>
  [[gnu::always_inline]] static inline void add_dims(const ValueRows<Isa, dtype>& v,
                                                     const unsigned char* next,
                                                     const ScoreRow* weights, uint32_t d,
                                                     float* out) {
    constexpr unsigned lanes = Floats<Isa>::size,
                       line_bytes = vectors * lanes * Elements<Isa, dtype>::bytes;
    Floats<Isa> sum[rows][vectors];
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) {
      PKV_UNROLL
      for (unsigned n = 0; n < vectors; n++)
        sum[r][n] = Floats<Isa>::load_unaligned(out + size_t{r} * v.dim + d + n * lanes);
    }
    const unsigned char* lines = next + size_t{d} * tile_tokens * Elements<Isa, dtype>::bytes;
    // Not unrolled: g++ 12 would keep a vector of each weight in memory for all dims.
    for (uint32_t t = 0; t < tile_tokens; t += 2, lines += 2 * line_bytes) {
      // Prefetches a few lines at a time, so that they arrive while this tile is multiplied.
      prefetch_lines<Isa>(lines, 2 * line_bytes);
      Floats<Isa> first[vectors], second[vectors];
      PKV_UNROLL
      for (unsigned n = 0; n < vectors; n++) v.load_two(t, d + n * lanes, first + n, second + n);
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++) {
        const Floats<Isa> w0(weights[r][t]), w1(weights[r][t + 1]);
        PKV_UNROLL
        for (unsigned n = 0; n < vectors; n++) sum[r][n] = Isa::fma(w0, first[n], sum[r][n]);
        PKV_UNROLL
        for (unsigned n = 0; n < vectors; n++) sum[r][n] = Isa::fma(w1, second[n], sum[r][n]);
      }
    }
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) {
      PKV_UNROLL
      for (unsigned n = 0; n < vectors; n++)
        sum[r][n].store_unaligned(out + size_t{r} * v.dim + d + n * lanes);
    }
  }

  // Writes the weights times unit<> to `to`. Returns `to`.
  template <unsigned rows>
  static const ScoreRow* times_unit(const ScoreRow* weights, ScoreRow* to) {
    for (unsigned r = 0; r < rows; r++)
      for (unsigned n = 0; n < tile_tokens; n += Floats<Isa>::size)
        (Floats<Isa>::load_aligned(weights[r] + n) * Floats<Isa>(unit<Isa, dtype>))
            .store_aligned(to[r] + n);
    return to;
  }
};

template <class Isa, pkv_dtype dtype>
struct ValueTile : FloatValueTile<Isa, dtype> {};

// Adds weights[t] * V[t] to out, only for the tokens of `seen`, with V unpacked by
// ValueTile::unpack. The slots of other tokens may have NaN, and 0 times NaN is NaN.
template <class Isa>
void add_seen(const float* v, size_t token_stride, size_t panel_stride, uint32_t seen,
              const float* weights, uint32_t dim, float* out) {
  for (uint32_t t = 0; t < tile_tokens; t++) {
    if ((seen >> t & 1) == 0) continue;
    const Floats<Isa> weight(weights[t]);
    for (uint32_t d = 0; d < dim; d += Floats<Isa>::size) {
      const float* from = v + d / tile_tokens * panel_stride + t * token_stride + d % tile_tokens;
      Isa::fma(weight, Floats<Isa>::load_unaligned(from), Floats<Isa>::load_unaligned(out + d))
          .store_unaligned(out + d);
    }
  }
}

}  // namespace pkv::kernels
