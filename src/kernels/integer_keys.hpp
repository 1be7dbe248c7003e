// K of the integer dtypes, int8 and int4: one instruction multiplies and adds pairs of 16-bit
// numbers, so a query row is first rounded to 16-bit integers.
#pragma once

#include "kernels/keys.hpp"

namespace pkv::kernels {

// A query row as 16-bit integers: rounded to 2^-15 of its largest element.
struct IntegerQuery {
  float scale;  // an element is scale times its integer; NaN if the row is not finite
  // After the struct there are dim / 2 words of two 16-bit integers each, in the order of the words
  // of K.
  uint32_t* pairs() { return reinterpret_cast<uint32_t*>(this + 1); }
  const uint32_t* pairs() const { return reinterpret_cast<const uint32_t*>(this + 1); }
  static constexpr size_t bytes(uint32_t dim) { return 4 + dim * 2; }
};

// The largest magnitude of a query's integers: the sum of 576 products with 8-bit numbers then fits
// into 32 bits.
inline constexpr float integer_range = 16384.0f;

// The elements e and e + p / 2 of each word as a pair of 16-bit numbers; a word has p elements.
template <class Isa, pkv_dtype dtype>
Words<Isa> signed_pair(Words<Isa> words, unsigned e) {
  constexpr int bits = static_cast<int>(element_bits(dtype));
  return Isa::shift_right_halves(
      Isa::shift_left_halves(words, 16 - bits - bits * static_cast<int>(e)), 16 - bits);
}

// Writes the integers of a query row and returns their scale.
template <class Isa>
float query_integers(const float* row, uint32_t dim, int32_t* to) {
  const float largest = largest_magnitude<Isa>(row, dim);
  const float inverse = largest >= min_quantised ? integer_range / largest : 0.0f;
  for (uint32_t d = 0; d < dim; d += Floats<Isa>::size)
    rounded<Isa>(Floats<Isa>::load_unaligned(row + d) * Floats<Isa>(inverse)).store_aligned(to + d);
  return largest < min_quantised ? 0.0f : largest / integer_range;
}

// Writes the integers as pairs. p is the number of elements in a word of K. Elements e and e + p /
// 2 become a pair, as in signed_pair() for K.
template <class Isa, unsigned p>
float query_pairs(const float* row, uint32_t dim, uint32_t* pairs) {
  alignas(64) int32_t q[max_dim];
  const float scale = query_integers<Isa>(row, dim, q);
  for (uint32_t d = 0; d < dim; d += p)
    for (unsigned e = 0; e < p / 2; e++)
      *pairs++ = (static_cast<uint32_t>(q[d + e]) & 0xFFFF) |
                 static_cast<uint32_t>(q[d + e + p / 2]) << 16;
  return scale;
}

// Vector n of the scales of a tile's 16 tokens, one scale per token.
template <class Isa, pkv_dtype dtype>
Floats<Isa> token_scales(const unsigned char* scales, unsigned n) {
  constexpr unsigned lanes = Floats<Isa>::size;
  if constexpr (dtype == PKV_INT8)
    return as_floats<Isa>(load_words<Isa>(scales + n * lanes * 4));
  else
    return Elements<Isa, PKV_BF16>::load(scales + n * lanes * 2);
}

template <class Isa, pkv_dtype dtype>
struct IntegerKeyTile {
  static constexpr unsigned max_tiles = 2;

  static size_t query_bytes(uint32_t dim) { return IntegerQuery::bytes(dim); }
  static void prepare(const float* row, uint32_t dim, float, void* to) {
    IntegerQuery* const query = static_cast<IntegerQuery*>(to);
    query->scale = query_pairs<Isa, p>(row, dim, query->pairs());
  }

  template <unsigned rows, unsigned tiles>
  static void scores(const void* q, uint32_t dim, TilePointers at, TilePointers next,
                     ScoreRow* scores) {
    for (unsigned i = 0; i < tiles; i++)
      scores_of_tile<rows>(q, dim, at[i], next[i], scores + i * rows);
  }

  static void unpack(const unsigned char* tile, uint32_t dim, float* to) {
    const unsigned char* const scales = tile + size_t{dim} * dim_bytes;
    for (uint32_t d = 0; d < dim; d += p, tile += 64, to += p * tile_tokens) {
      for (unsigned n = 0; n < vectors; n++) {
        const Words<Isa> words = load_words<Isa>(tile + n * lanes * 4);
        const Floats<Isa> scale = token_scales<Isa, dtype>(
            dtype == PKV_INT8 ? scales : scales + d / int4_group_size * 2 * tile_tokens, n);
        for (unsigned e = 0; e < p; e++) {
          (xsimd::to_float(signed_field<Isa, element_bits(dtype)>(words, e)) * scale)
              .store_unaligned(to + e * tile_tokens + n * lanes);
        }
      }
    }
  }

 private:
  static constexpr unsigned p = interleaved(dtype), pairs_per_word = p / 2;
  static constexpr unsigned dim_bytes = tile_tokens * element_bits(dtype) / 8;  // of all tokens
  static constexpr unsigned vectors = vectors_per_tile<Isa>, lanes = Words<Isa>::size;
  // The sums of each row. With one vector per row, a second sum hides the latency of the products.
  // The order of additions does not matter for integers.
  static constexpr unsigned chains = vectors == 1 ? 2 : 1;
  template <unsigned rows>
  using Sums = Ints<Isa>[rows][vectors][chains];

  static const IntegerQuery& query(const void* rows, unsigned r, uint32_t dim) {
    return *reinterpret_cast<const IntegerQuery*>(static_cast<const unsigned char*>(rows) +
                                                  r * IntegerQuery::bytes(dim));
  }

  template <unsigned rows>
  [[gnu::always_inline]] static inline void clear(Sums<rows>& sum) {
    PKV_UNROLL
    for (auto& row : sum) {
      PKV_UNROLL
      for (auto& vector : row) {
        PKV_UNROLL
        for (Ints<Isa>& chain : vector) chain = Ints<Isa>(0);
      }
    }
  }

  static Ints<Isa> total_of(const Ints<Isa> (&sum)[chains]) {
    return chains == 2 ? sum[0] + sum[chains - 1] : sum[0];
  }

  // Adds the products of the p dims in word number `word` of each token's K; `tile` points to it.
  template <unsigned rows>
  [[gnu::always_inline]] static inline void add_word(const unsigned char* tile,
                                                     const uint32_t* const (&pairs)[rows],
                                                     uint32_t word, Sums<rows>& sum) {
    PKV_UNROLL
    for (unsigned n = 0; n < vectors; n++) {
      const Words<Isa> words = load_words<Isa>(tile + n * lanes * 4);
      PKV_UNROLL
      for (unsigned e = 0; e < pairs_per_word; e++) {
        const Words<Isa> k = signed_pair<Isa, dtype>(words, e);
        PKV_UNROLL
        for (unsigned r = 0; r < rows; r++) {
          Ints<Isa>& chain = sum[r][n][e % chains];
          chain = Isa::dot_pairs(chain, k, Words<Isa>(pairs[r][pairs_per_word * word + e]));
        }
      }
    }
  }

  // int8: all dims of a token have one scale.
  template <unsigned rows>
    requires(dtype == PKV_INT8)
  static void scores_of_tile(const void* q, uint32_t dim, const unsigned char* tile,
                             const unsigned char* next, ScoreRow* scores) {
    const unsigned char* const scales = tile + size_t{dim} * dim_bytes;
    const uint32_t* pairs[rows];
    Sums<rows> sum;
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) pairs[r] = query(q, r, dim).pairs();
    clear<rows>(sum);
    for (uint32_t word = 0; word < dim / p; word++, tile += 64, next += 64) {
      prefetch_lines<Isa>(next, 64);
      add_word<rows>(tile, pairs, word, sum);
    }
    prefetch_lines<Isa>(next, 64);
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) {
      PKV_UNROLL
      for (unsigned n = 0; n < vectors; n++) {
        const Floats<Isa> scale =
            token_scales<Isa, dtype>(scales, n) * Floats<Isa>(query(q, r, dim).scale);
        (xsimd::to_float(total_of(sum[r][n])) * scale).store_aligned(scores[r] + n * lanes);
      }
    }
  }

  // int4: each group of 32 dims has a scale of its own.
  template <unsigned rows>
    requires(dtype == PKV_INT4)
  static void scores_of_tile(const void* q, uint32_t dim, const unsigned char* tile,
                             const unsigned char* next, ScoreRow* scores) {
    const unsigned char* scales = tile + size_t{dim} * dim_bytes;
    const uint32_t* pairs[rows];
    Floats<Isa> total[rows][vectors];
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) {
      pairs[r] = query(q, r, dim).pairs();
      PKV_UNROLL
      for (auto& vector : total[r]) vector = Floats<Isa>(0.0f);
    }
    for (uint32_t g = 0; g * int4_group_size < dim; g++, scales += 2 * tile_tokens) {
      const uint32_t words_left = (dim - g * int4_group_size) / p,
                     words = words_left < 4 ? words_left : 4;
      Sums<rows> sum;
      clear<rows>(sum);
      // 4 rounds, except for the last scale of a row, which may cover 16 dims
#pragma GCC unroll 4
      for (uint32_t word = 0; word < words; word++, tile += 64, next += 64) {
        prefetch_lines<Isa>(next, 64);
        add_word<rows>(tile, pairs, word, sum);
      }
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++) {
        pairs[r] += pairs_per_word * words;
        PKV_UNROLL
        for (unsigned n = 0; n < vectors; n++)
          total[r][n] = Isa::fma(xsimd::to_float(total_of(sum[r][n])),
                                 token_scales<Isa, dtype>(scales, n), total[r][n]);
      }
    }
    prefetch_lines<Isa>(next, 128);
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) {
      PKV_UNROLL
      for (unsigned n = 0; n < vectors; n++)
        (total[r][n] * Floats<Isa>(query(q, r, dim).scale)).store_aligned(scores[r] + n * lanes);
    }
  }
};

template <class Isa>
struct KeyTile<Isa, PKV_INT8> : IntegerKeyTile<Isa, PKV_INT8> {};
template <class Isa>
struct KeyTile<Isa, PKV_INT4> : IntegerKeyTile<Isa, PKV_INT4> {};

}  // namespace pkv::kernels
