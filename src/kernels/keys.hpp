// K of a packed tile: scores of its 16 tokens for some query rows at once. K is loaded once for all
// of them, each token has a lane of its own, so nothing is summed across lanes.
//
//   KeyTile<Isa, dtype>
//     query_bytes(dim)             of a prepared row; 0: rows are taken as they are, fp32
//     prepare(row, dim, scale, to)
//     most_tiles                   that are worth to be taken in one step
//     linear                       one row is multiplied faster than memory gives K
//     scores<rows, tiles>(q, dim, at, next, scores)    scores[i * rows + r][t] = row r . K of token
//     t of tile i unpack(tile, dim, to)        to[dim][16 tokens], fp32
#pragma once

#include "kernels/quantise.hpp"
#include "kernels/tile_layout.h"
#include "kernels/transpose.hpp"

namespace pkv::kernels {

using ScoreRow = float[tile_tokens];

// Tiles that are attended to together. One head's queries and results then serve for all of them
// before the next head's push them out of the L1 cache.
inline constexpr uint32_t tiles_per_step = 2;

// Some tiles; `next` ones are prefetched, they are wanted soon after.
using TilePointers = const unsigned char* const*;

// Into the L2 cache: more lines than the L1 cache can wait for hold up everything else, and its
// share of the work is small.
template <class Isa>
static inline void prefetch_lines(const unsigned char* from, unsigned bytes) {
  for (unsigned line = 0; line < bytes; line += 64) __builtin_prefetch(from + line, 0, 2);
}

// Two dims of K for 16 tokens.
template <class Isa, pkv_dtype dtype>
struct DimPair {
  static constexpr unsigned bytes = 2 * tile_tokens * Elements<Isa, dtype>::bytes;

  Floats<Isa> even[vectors_per_tile<Isa>], odd[vectors_per_tile<Isa>];

  explicit DimPair(const unsigned char* from) {
    constexpr unsigned vector_bytes = Floats<Isa>::size * Elements<Isa, dtype>::bytes;
    PKV_UNROLL
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
    PKV_UNROLL
    for (unsigned n = 0; n < vectors_per_tile<Isa>; n++) {
      const Words<Isa> words = load_words<Isa>(from + n * Floats<Isa>::size * 4);
      even[n] = lower_bf16<Isa>(words);
      odd[n] = upper_bf16<Isa>(words);
    }
  }
};

template <class Isa, pkv_dtype dtype>
  requires through_f16<Isa, dtype>
struct DimPair<Isa, dtype> {
  static constexpr unsigned bytes = 2 * tile_tokens;

  Floats<Isa> even[vectors_per_tile<Isa>], odd[vectors_per_tile<Isa>];

  explicit DimPair(const unsigned char* from) {
    PKV_UNROLL
    for (unsigned n = 0; n < vectors_per_tile<Isa>; n++, from += Floats<Isa>::size)
      load_two_fp8<Isa, dtype>(from, from + tile_tokens, even + n, odd + n);
  }
};

// The floating-point types.
template <class Isa, pkv_dtype dtype>
struct FloatKeyTile {
  static constexpr unsigned max_tiles =
      1;  // two of them and the two that are prefetched would fill the L1 cache
  static constexpr bool linear = !is_fp8(dtype);
  static size_t query_bytes(uint32_t) { return 0; }
  static void prepare(const float*, uint32_t, float, void*) {}

  template <unsigned rows, unsigned tiles>
  static void scores(const void* query_rows, uint32_t dim, TilePointers at, TilePointers next_at,
                     ScoreRow* scores) {
    static_assert(tiles == 1);
    const unsigned char *tile = *at, *next = *next_at;
    constexpr unsigned vectors = vectors_per_tile<Isa>;
    // With one vector per row the adders' latency is hidden by a second sum per row.
    constexpr unsigned chains = vectors == 1 ? 2 : 1;
    using Pair = DimPair<Isa, dtype>;
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

    for (size_t d = 0; d < dims; d += 2, tile += Pair::bytes, next += Pair::bytes) {
      prefetch_lines<Isa>(next, Pair::bytes);
      const Pair k(tile);
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++) {
        const Floats<Isa> q_even(q[r * dims + d]), q_odd(q[r * dims + d + 1]);
        PKV_UNROLL
        for (unsigned n = 0; n < vectors; n++) {
          sum[0][r][n] = Isa::fma(q_even, k.even[n], sum[0][r][n]);
          sum[chains - 1][r][n] = Isa::fma(q_odd, k.odd[n], sum[chains - 1][r][n]);
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
    if constexpr (dtype == PKV_BF16 || through_f16<Isa, dtype>) {
      const Floats<Isa> scale(unit<Isa, dtype>);
      for (uint32_t d = 0; d < dim;
           d += 2, tile += DimPair<Isa, dtype>::bytes, to += 2 * tile_tokens) {
        DimPair<Isa, dtype> k(tile);
        for (unsigned n = 0; n < vectors_per_tile<Isa>; n++) {
          if constexpr (unit<Isa, dtype> != 1) k.even[n] *= scale, k.odd[n] *= scale;
          k.even[n].store_unaligned(to + n * Floats<Isa>::size);
          k.odd[n].store_unaligned(to + tile_tokens + n * Floats<Isa>::size);
        }
      }
    } else {
      convert<Isa, dtype, PKV_F32>(tile, reinterpret_cast<unsigned char*>(to), dim * tile_tokens);
    }
  }
};

template <class Isa, pkv_dtype dtype>
struct KeyTile : FloatKeyTile<Isa, dtype> {};

// A query row in 16-bit integers, for the quantised types: rounded to 2^-15 of its largest element.
struct IntegerQuery {
  float scale;  // of the integers; NaN where the row is not finite
  // Then dim / 2 words of two 16-bit integers, in the order in which K's words give theirs.
  uint32_t* pairs() { return reinterpret_cast<uint32_t*>(this + 1); }
  const uint32_t* pairs() const { return reinterpret_cast<const uint32_t*>(this + 1); }
  static constexpr size_t bytes(uint32_t dim) { return 4 + dim * 2; }
};

inline constexpr float integer_range =
    16384.0f;  // so that 576 products with 8-bit numbers fit into 32 bits

// Elements e and e + p / 2 of words of p elements, as 16-bit numbers in two's complement.
template <class Isa, pkv_dtype dtype>
Words<Isa> signed_pair(Words<Isa> words, unsigned e) {
  constexpr int bits = static_cast<int>(element_bits(dtype));
  return Isa::shift_right_halves(
      Isa::shift_left_halves(words, 16 - bits - bits * static_cast<int>(e)), 16 - bits);
}

// The integers of a row. Returns their scale.
template <class Isa>
float query_integers(const float* row, uint32_t dim, int32_t* to) {
  const float largest = largest_magnitude<Isa>(row, dim);
  const float inverse = largest >= min_quantised ? integer_range / largest : 0.0f;
  for (uint32_t d = 0; d < dim; d += Floats<Isa>::size)
    rounded<Isa>(Floats<Isa>::load_unaligned(row + d) * Floats<Isa>(inverse)).store_aligned(to + d);
  return largest < min_quantised ? 0.0f : largest / integer_range;
}

// together: elements of K in a word, which gives them as pairs e, e + together / 2.
template <class Isa, unsigned interleave>
void quantise_query(const float* row, uint32_t dim, IntegerQuery* to) {
  alignas(64) int32_t q[max_dim];
  to->scale = query_integers<Isa>(row, dim, q);
  uint32_t* pairs = to->pairs();
  for (uint32_t d = 0; d < dim; d += interleave)
    for (unsigned e = 0; e < interleave / 2; e++)
      *pairs++ = (static_cast<uint32_t>(q[d + e]) & 0xFFFF) |
                 static_cast<uint32_t>(q[d + e + interleave / 2]) << 16;
}

template <class Ints, unsigned rows, unsigned vectors, unsigned chains>
void clear(Ints (&sum)[rows][vectors][chains]) {
  PKV_UNROLL
  for (auto& row : sum) {
    PKV_UNROLL
    for (auto& vector : row) {
      PKV_UNROLL
      for (Ints& chain : vector) chain = Ints(0);
    }
  }
}

template <class Ints, unsigned chains>
Ints total_of(const Ints (&sum)[chains]) {
  return chains == 2 ? sum[0] + sum[chains - 1] : sum[0];
}

// What the two integer types have in common.
template <class Isa, unsigned together_in_word>
struct IntegerKeyTile {
  static constexpr unsigned max_tiles = 2;
  static constexpr bool linear = false;
  // Sums per row: with one vector per row the latency of the products would show. The order of
  // integer sums does not matter.
  static constexpr unsigned chains = vectors_per_tile<Isa> == 1 ? 2 : 1;
  static size_t query_bytes(uint32_t dim) { return IntegerQuery::bytes(dim); }
  static void prepare(const float* row, uint32_t dim, float, void* to) {
    quantise_query<Isa, together_in_word>(row, dim, static_cast<IntegerQuery*>(to));
  }
  static const IntegerQuery& query(const void* rows, unsigned r, uint32_t dim) {
    return *reinterpret_cast<const IntegerQuery*>(static_cast<const unsigned char*>(rows) +
                                                  r * IntegerQuery::bytes(dim));
  }
};

template <class Isa>
struct GenericInt8KeyTile : IntegerKeyTile<Isa, 4> {
  using Base = IntegerKeyTile<Isa, 4>;

  template <unsigned rows, unsigned tiles>
  static void scores(const void* q, uint32_t dim, TilePointers at, TilePointers next,
                     ScoreRow* scores) {
    for (unsigned i = 0; i < tiles; i++)
      scores_of_tile<rows>(q, dim, at[i], next[i], scores + i * rows);
  }

  template <unsigned rows>
  static void scores_of_tile(const void* q, uint32_t dim, const unsigned char* tile,
                             const unsigned char* next, ScoreRow* scores) {
    constexpr unsigned vectors = vectors_per_tile<Isa>, lanes = Words<Isa>::size;
    const unsigned char* const scales = tile + size_t{dim} * tile_tokens;
    const uint32_t* pairs[rows];
    Ints<Isa> sum[rows][vectors][Base::chains];
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) pairs[r] = Base::query(q, r, dim).pairs();
    clear(sum);
    for (uint32_t word = 0; word < dim / 4; word++, tile += 64, next += 64) {
      prefetch_lines<Isa>(next, 64);
      PKV_UNROLL
      for (unsigned n = 0; n < vectors; n++) {
        const Words<Isa> words = load_words<Isa>(tile + n * lanes * 4);
        PKV_UNROLL
        for (unsigned e = 0; e < 2; e++) {
          const Words<Isa> k = signed_pair<Isa, PKV_INT8>(words, e);
          PKV_UNROLL
          for (unsigned r = 0; r < rows; r++) {
            Ints<Isa>& chain = sum[r][n][e % Base::chains];
            chain = Isa::dot_pairs(chain, k, Words<Isa>(pairs[r][2 * word + e]));
          }
        }
      }
    }
    prefetch_lines<Isa>(next, 64);
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) {
      PKV_UNROLL
      for (unsigned n = 0; n < vectors; n++) {
        const Floats<Isa> scale = as_floats<Isa>(load_words<Isa>(scales + n * lanes * 4)) *
                                  Floats<Isa>(Base::query(q, r, dim).scale);
        (xsimd::to_float(total_of(sum[r][n])) * scale).store_aligned(scores[r] + n * lanes);
      }
    }
  }

  static void unpack(const unsigned char* tile, uint32_t dim, float* to) {
    constexpr unsigned lanes = Words<Isa>::size;
    const unsigned char* const scales = tile + size_t{dim} * tile_tokens;
    for (uint32_t d = 0; d < dim; d += 4, tile += 64, to += 4 * tile_tokens) {
      for (unsigned n = 0; n < vectors_per_tile<Isa>; n++) {
        const Words<Isa> words = load_words<Isa>(tile + n * lanes * 4);
        const Floats<Isa> scale = as_floats<Isa>(load_words<Isa>(scales + n * lanes * 4));
        for (unsigned e = 0; e < 4; e++) {
          (xsimd::to_float(signed_field<Isa, 8>(words, e)) * scale)
              .store_unaligned(to + e * tile_tokens + n * lanes);
        }
      }
    }
  }
};

template <class Isa>
struct KeyTile<Isa, PKV_INT8> : GenericInt8KeyTile<Isa> {};

// 16 bf16 scales of a group.
template <class Isa>
Floats<Isa> bf16_scales(const unsigned char* from, unsigned vector) {
  return Elements<Isa, PKV_BF16>::load(from + vector * Floats<Isa>::size * 2);
}

template <class Isa>
struct Int4KeyTile : IntegerKeyTile<Isa, 8> {
  using Base = IntegerKeyTile<Isa, 8>;

  template <unsigned rows, unsigned tiles>
  static void scores(const void* q, uint32_t dim, TilePointers at, TilePointers next,
                     ScoreRow* scores) {
    for (unsigned i = 0; i < tiles; i++)
      scores_of_tile<rows>(q, dim, at[i], next[i], scores + i * rows);
  }

  template <unsigned rows>
  static void scores_of_tile(const void* q, uint32_t dim, const unsigned char* tile,
                             const unsigned char* next, ScoreRow* scores) {
    constexpr unsigned vectors = vectors_per_tile<Isa>, lanes = Words<Isa>::size;
    const unsigned char* scales = tile + size_t{dim} * tile_tokens / 2;
    const uint32_t* pairs[rows];
    Floats<Isa> total[rows][vectors];
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) {
      pairs[r] = Base::query(q, r, dim).pairs();
      PKV_UNROLL
      for (auto& vector : total[r]) vector = Floats<Isa>(0.0f);
    }
    for (uint32_t group = 0; group * int4_group_size < dim; group++, scales += 2 * tile_tokens) {
      const uint32_t words_left = (dim - group * int4_group_size) / 8,
                     group_words = words_left < 4 ? words_left : 4;
      Ints<Isa> sum[rows][vectors][Base::chains];
      clear(sum);
// The number of rounds is not known to the compiler: 4 but for the last group of a row.
#pragma GCC unroll 4
      for (uint32_t word = 0; word < group_words; word++, tile += 64, next += 64) {
        prefetch_lines<Isa>(next, 64);
        PKV_UNROLL
        for (unsigned n = 0; n < vectors; n++) {
          const Words<Isa> words = load_words<Isa>(tile + n * lanes * 4);
          PKV_UNROLL
          for (unsigned e = 0; e < 4; e++) {
            const Words<Isa> nibbles = signed_pair<Isa, PKV_INT4>(words, e);
            PKV_UNROLL
            for (unsigned r = 0; r < rows; r++) {
              Ints<Isa>& chain = sum[r][n][e % Base::chains];
              chain = Isa::dot_pairs(chain, nibbles, Words<Isa>(pairs[r][4 * word + e]));
            }
          }
        }
      }
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++) {
        pairs[r] += 4 * group_words;
        PKV_UNROLL
        for (unsigned n = 0; n < vectors; n++)
          total[r][n] = Isa::fma(xsimd::to_float(total_of(sum[r][n])), bf16_scales<Isa>(scales, n),
                                 total[r][n]);
      }
    }
    prefetch_lines<Isa>(next, 128);
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) {
      PKV_UNROLL
      for (unsigned n = 0; n < vectors; n++)
        (total[r][n] * Floats<Isa>(Base::query(q, r, dim).scale))
            .store_aligned(scores[r] + n * lanes);
    }
  }

  static void unpack(const unsigned char* tile, uint32_t dim, float* to) {
    constexpr unsigned lanes = Words<Isa>::size;
    const unsigned char* const scales = tile + size_t{dim} * tile_tokens / 2;
    for (uint32_t d = 0; d < dim; d += 8, tile += 64, to += 8 * tile_tokens) {
      for (unsigned n = 0; n < vectors_per_tile<Isa>; n++) {
        const Words<Isa> words = load_words<Isa>(tile + n * lanes * 4);
        const Floats<Isa> scale =
            bf16_scales<Isa>(scales + d / int4_group_size * 2 * tile_tokens, n);
        for (unsigned e = 0; e < 8; e++) {
          (xsimd::to_float(signed_field<Isa, 4>(words, e)) * scale)
              .store_unaligned(to + e * tile_tokens + n * lanes);
        }
      }
    }
  }
};

template <class Isa>
struct KeyTile<Isa, PKV_INT4> : Int4KeyTile<Isa> {};

}  // namespace pkv::kernels
