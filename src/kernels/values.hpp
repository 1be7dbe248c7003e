// V of a packed tile: out[row] += the sum of weight[row][token] * V[token] over its 16 tokens, all
// of which these rows see. For a row that sees only some of them, add_seen() adds V of these: the
// others may hold anything, and 0 times NaN is NaN. V is loaded once for all rows of a register
// tile.
//
//   ValueTile<Isa, dtype>
//     max_tiles    how many tiles are worth taking at once
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

// Some vectors of dims of V of two tokens.
template <class Isa, unsigned vectors>
struct FloatPair {
  Floats<Isa> first[vectors], second[vectors];

  // Adds the products with a row's weights of tokens t and t + 1.
  void add(const ScoreRow& weights, uint32_t t, Floats<Isa> (&sum)[vectors]) const {
    const Floats<Isa> w0(weights[t]), w1(weights[t + 1]);
    PKV_UNROLL
    for (unsigned n = 0; n < vectors; n++) sum[n] = Isa::fma(w0, first[n], sum[n]);
    PKV_UNROLL
    for (unsigned n = 0; n < vectors; n++) sum[n] = Isa::fma(w1, second[n], sum[n]);
  }
};

// Loads the dims from d on of tokens t and t + 1 of a tile.
template <class Isa, pkv_dtype dtype, unsigned vectors>
struct TokenPair : FloatPair<Isa, vectors> {
  TokenPair(const unsigned char* tile, uint32_t dim, uint32_t t, uint32_t d) {
    constexpr unsigned lanes = Floats<Isa>::size, bytes = Elements<Isa, dtype>::bytes;
    const unsigned char* at = tile + (size_t{t} * dim + d) * bytes;
    PKV_UNROLL
    for (unsigned n = 0; n < vectors; n++, at += lanes * bytes) {
      if constexpr (through_f16<Isa, dtype>) {
        load_two_fp8<Isa, dtype>(at, at + dim, this->first + n, this->second + n);
      } else {
        this->first[n] = Elements<Isa, dtype>::load(at);
        this->second[n] = Elements<Isa, dtype>::load(at + size_t{dim} * bytes);
      }
    }
  }
};

template <class Isa, unsigned vectors>
struct TokenPair<Isa, PKV_BF16, vectors> : FloatPair<Isa, vectors> {
  TokenPair(const unsigned char* tile, uint32_t dim, uint32_t t, uint32_t d) {
    const unsigned char* const at = tile + (size_t{t} / 2 * dim + d) * 4;
    PKV_UNROLL
    for (unsigned n = 0; n < vectors; n++) {
      const Words<Isa> words = load_words<Isa>(at + n * Floats<Isa>::size * 4);
      this->first[n] = lower_bf16<Isa>(words);
      this->second[n] = upper_bf16<Isa>(words);
    }
  }
};

template <class Isa, pkv_dtype dtype>
struct FloatValueTile {
  static constexpr unsigned max_tiles = 1;

  template <unsigned rows, unsigned tiles>
  static void accumulate(TilePointers at, TilePointers next, const ScoreRow* weights, uint32_t dim,
                         float* out) {
    static_assert(tiles == 1);
    alignas(64) float scaled[rows][tile_tokens];
    if constexpr (unit<Isa, dtype> != 1) weights = times_unit<rows>(weights, scaled);
    add<Pair, rows, most_vectors<rows>>(*at, *next, weights, dim, 0, out);
  }

  static void unpack(const unsigned char* tile, uint32_t dim, float* to, size_t token_stride,
                     size_t panel_stride) {
    constexpr unsigned vectors = vectors_per_tile<Isa>;
    const Floats<Isa> scale(unit<Isa, dtype>);
    for (uint32_t d = 0; d < dim; d += tile_tokens, to += panel_stride) {
      for (uint32_t t = 0; t < tile_tokens; t += 2) {
        Pair<vectors> v(tile, dim, t, d);
        for (unsigned n = 0; n < vectors; n++) {
          if constexpr (unit<Isa, dtype> != 1) v.first[n] *= scale, v.second[n] *= scale;
          v.first[n].store_unaligned(to + t * token_stride + n * Floats<Isa>::size);
          v.second[n].store_unaligned(to + (t + 1) * token_stride + n * Floats<Isa>::size);
        }
      }
    }
  }

 protected:
  // The vectors of dims of a register tile, which share the loads of weights.
  template <unsigned rows>
  static constexpr unsigned most_vectors = rows == 1 ? 8 : 2 * Isa::direct_rows / rows;

  // Adds the dims from d on, `vectors` vectors at a time as long as there are as many.
  // Pair<vectors> loads two tokens and multiplies them by weights.
  template <template <unsigned> class Pair, unsigned rows, unsigned vectors>
  static void add(const unsigned char* tile, const unsigned char* next, const ScoreRow* weights,
                  uint32_t dim, uint32_t d, float* out) {
    constexpr unsigned dims = vectors * Floats<Isa>::size;
    for (; d + dims <= dim; d += dims)
      add_dims<Pair, rows, vectors>(tile, next, weights, dim, d, out + d);
    if constexpr (dims > tile_tokens)
      if (d < dim) add<Pair, rows, vectors / 2>(tile, next, weights, dim, d, out);
  }

 private:
  template <unsigned vectors>
  using Pair = TokenPair<Isa, dtype, vectors>;

  // The order of a row's additions does not depend on `rows` and `vectors`.
  template <template <unsigned> class Pair, unsigned rows, unsigned vectors>
  [[gnu::always_inline]] static inline void add_dims(const unsigned char* tile,
                                                     const unsigned char* next,
                                                     const ScoreRow* weights, uint32_t dim,
                                                     uint32_t d, float* out) {
    constexpr unsigned lanes = Floats<Isa>::size,
                       line_bytes = vectors * lanes * Elements<Isa, dtype>::bytes;
    Floats<Isa> sum[rows][vectors];
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) {
      PKV_UNROLL
      for (unsigned n = 0; n < vectors; n++)
        sum[r][n] = Floats<Isa>::load_unaligned(out + size_t{r} * dim + n * lanes);
    }
    next += size_t{d} * tile_tokens * Elements<Isa, dtype>::bytes;
    // Not unrolled: g++ 12 would keep a vector of each weight in memory for all dims.
    for (uint32_t t = 0; t < tile_tokens; t += 2, next += 2 * line_bytes) {
      // Prefetches a few lines at a time, so that they arrive while this tile is multiplied.
      prefetch_lines<Isa, rows>(next, 2 * line_bytes);
      const Pair<vectors> v(tile, dim, t, d);
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++) v.add(weights[r], t, sum[r]);
    }
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) {
      PKV_UNROLL
      for (unsigned n = 0; n < vectors; n++)
        sum[r][n].store_unaligned(out + size_t{r} * dim + n * lanes);
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
