// K of a packed tile: the scores of its 16 tokens for some query rows at once. K is loaded once for
// all rows. Each token has a lane of its own, so no sum goes across lanes.
//
//   KeyTile<Isa, dtype>
//     max_tiles                     how many tiles are worth taking at once
//     query_bytes(dim)              of a prepared row; 0: rows are taken as they are, in fp32
//     prepare(row, dim, scale, to)  writes a prepared row
//     scores<rows, tiles>(q, dim, at, next, scores)
//                                   scores[i * rows + r][t] = row r of q times token t of tile
//                                   at[i]
//     unpack(tile, dim, to)         fp32 to to[dim][16 tokens]
//
// This file has the floating-point dtypes, integer_keys.hpp the others. fp8.hpp explains
// through_f16 and unit<>.
#pragma once

#include "kernels/quantise.hpp"
#include "kernels/tile_layout.h"
#include "kernels/transpose.hpp"

namespace pkv::kernels {

using ScoreRow = float[tile_tokens];

// The number of tiles of a strip with few rows. They are read together: the queries and results of
// a head are used for all of them before those of the next head replace them in the L1 cache.
inline constexpr uint32_t tiles_per_strip = 2;

// The addresses of some tiles. Tiles called `next` are only prefetched.
using TilePointers = const unsigned char* const*;

// An instruction set that reads fastest if lines are prefetched into the L1 cache, at this distance
// in bytes. The CPU's own prefetcher then runs ahead.
template <class Isa>
concept PrefetchesNear = requires { Isa::prefetch_distance; };

// An instruction set whose CPUs can wait for many lines in the L1 cache. With the most rows of a
// register tile, lines this many bytes further on are prefetched into the L2 cache, too.
template <class Isa>
concept PrefetchesIntoBoth = requires { Isa::second_distance; };

// Prefetches lines. On most CPUs the L1 cache can wait for only a few at a time, and loads stall
// when it waits for that many; moving a line from L2 to L1 costs little in comparison.
template <class Isa, unsigned rows = 1>
static inline void prefetch_lines(const unsigned char* from, unsigned bytes) {
  constexpr int locality = PrefetchesNear<Isa> || PrefetchesIntoBoth<Isa> ? 3 : 2;
  for (unsigned line = 0; line < bytes; line += 64) {
    __builtin_prefetch(from + line, 0, locality);
    if constexpr (PrefetchesIntoBoth<Isa>)
      if (rows == Isa::direct_rows) __builtin_prefetch(from + line + Isa::second_distance, 0, 2);
  }
}

// Pairs of dims of K for 16 tokens. Most dtypes load one pair at a time.
template <class Isa, pkv_dtype dtype>
struct DimPairs {
  static constexpr unsigned pairs = 1;

  Floats<Isa> even[1][vectors_per_tile<Isa>], odd[1][vectors_per_tile<Isa>];

  explicit DimPairs(const unsigned char* from) {
    constexpr unsigned lanes = Floats<Isa>::size, bytes = Elements<Isa, dtype>::bytes;
    PKV_UNROLL
    for (unsigned n = 0; n < vectors_per_tile<Isa>; n++, from += lanes * bytes) {
      even[0][n] = Elements<Isa, dtype>::load(from);
      odd[0][n] = Elements<Isa, dtype>::load(from + tile_tokens * bytes);
    }
  }
};

template <class Isa>
struct DimPairs<Isa, PKV_BF16> {
  static constexpr unsigned pairs = 1;

  Floats<Isa> even[1][vectors_per_tile<Isa>], odd[1][vectors_per_tile<Isa>];

  explicit DimPairs(const unsigned char* from) {
    PKV_UNROLL
    for (unsigned n = 0; n < vectors_per_tile<Isa>; n++) {
      const Words<Isa> words = load_words<Isa>(from + n * Floats<Isa>::size * 4);
      even[0][n] = lower_bf16<Isa>(words);
      odd[0][n] = upper_bf16<Isa>(words);
    }
  }
};

template <class Isa, pkv_dtype dtype>
  requires through_f16<Isa, dtype>
struct DimPairs<Isa, dtype> {
  static constexpr unsigned pairs = 1;

  Floats<Isa> even[1][vectors_per_tile<Isa>], odd[1][vectors_per_tile<Isa>];

  explicit DimPairs(const unsigned char* from) {
    PKV_UNROLL
    for (unsigned n = 0; n < vectors_per_tile<Isa>; n++, from += Floats<Isa>::size)
      load_two_fp8<Isa, dtype>(from, from + tile_tokens, even[0] + n, odd[0] + n);
  }
};

// An instruction set whose CPUs read some tiles fastest one at a time, in the order of memory.
// lead_in_order() then returns how many bytes ahead to prefetch, and -1 if two tiles at a time with
// prefetches of the next two are faster. 0 bytes are harmless: they prefetch what is read next.
template <class Isa>
concept ReadsInOrder = requires { Isa::lead_in_order(PKV_F32, 1, 128); };

// The floating-point dtypes.
template <class Isa, pkv_dtype dtype>
struct FloatKeyTile {
  // Two tiles and the two that are prefetched would fill the L1 cache.
  static constexpr unsigned max_tiles = 1;
  static size_t query_bytes(uint32_t) { return 0; }
  static void prepare(const float*, uint32_t, float, void*) {}

  template <unsigned rows, unsigned tiles>
  static void scores(const void* query_rows, uint32_t dim, TilePointers at, TilePointers next_at,
                     ScoreRow* scores) {
    static_assert(tiles == 1);
    const unsigned char *tile = *at, *next = *next_at;
    constexpr unsigned vectors = vectors_per_tile<Isa>;
    // With one vector per row, a second sum per row hides the latency of the additions.
    constexpr unsigned chains = vectors == 1 ? 2 : 1;
    using Pairs = DimPairs<Isa, dtype>;
    constexpr unsigned bytes = Pairs::pairs * 2 * tile_tokens * Elements<Isa, dtype>::bytes;
    const float* q = static_cast<const float*>(query_rows);
    const size_t dims = dim;
    Floats<Isa> sum[chains][rows][vectors];
    PKV_UNROLL
    for (auto& chain : sum) {
      PKV_UNROLL
      for (auto& row : chain) {
        PKV_UNROLL
        for (auto& vector : row) vector = Floats<Isa>(0.0f);
      }
    }

    for (size_t d = 0; d < dims; d += 2 * Pairs::pairs, tile += bytes, next += bytes) {
      prefetch_lines<Isa, rows>(next, bytes);
      const Pairs k(tile);
      PKV_UNROLL
      for (unsigned i = 0; i < Pairs::pairs; i++) {
        PKV_UNROLL
        for (unsigned r = 0; r < rows; r++) {
          const float* const pair = q + r * dims + d + 2 * i;
          const Floats<Isa> q_even(pair[0]), q_odd(pair[1]);
          PKV_UNROLL
          for (unsigned n = 0; n < vectors; n++) {
            sum[0][r][n] = Isa::fma(q_even, k.even[i][n], sum[0][r][n]);
            sum[chains - 1][r][n] = Isa::fma(q_odd, k.odd[i][n], sum[chains - 1][r][n]);
          }
        }
      }
    }
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) {
      PKV_UNROLL
      for (unsigned n = 0; n < vectors; n++) {
        Floats<Isa> total = chains == 2 ? sum[0][r][n] + sum[chains - 1][r][n] : sum[0][r][n];
        if constexpr (unit<Isa, dtype> != 1) total *= Floats<Isa>(unit<Isa, dtype>);
        total.store_aligned(scores[r] + n * Floats<Isa>::size);
      }
    }
  }

  static void unpack(const unsigned char* tile, uint32_t dim, float* to) {
    if constexpr (dtype == PKV_BF16 || is_fp8(dtype)) {
      using Pairs = DimPairs<Isa, dtype>;
      const Floats<Isa> scale(unit<Isa, dtype>);
      for (uint32_t d = 0; d < dim; d += 2 * Pairs::pairs) {
        const Pairs k(tile + size_t{d} * tile_tokens * Elements<Isa, dtype>::bytes);
        PKV_UNROLL
        for (unsigned i = 0; i < Pairs::pairs; i++, to += 2 * tile_tokens) {
          for (unsigned n = 0; n < vectors_per_tile<Isa>; n++) {
            Floats<Isa> even = k.even[i][n], odd = k.odd[i][n];
            if constexpr (unit<Isa, dtype> != 1) even *= scale, odd *= scale;
            even.store_unaligned(to + n * Floats<Isa>::size);
            odd.store_unaligned(to + tile_tokens + n * Floats<Isa>::size);
          }
        }
      }
    } else {
      convert<Isa, dtype, PKV_F32>(tile, reinterpret_cast<unsigned char*>(to), dim * tile_tokens);
    }
  }
};

template <class Isa, pkv_dtype dtype>
struct KeyTile : FloatKeyTile<Isa, dtype> {};

}  // namespace pkv::kernels
