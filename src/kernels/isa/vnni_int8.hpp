// int8 with VNNI: V is multiplied in its layout, K with its sign bits flipped, which adds 128.
#pragma once

#include "kernels/isa/vnni_bytes.hpp"

namespace pkv::kernels {

template <class Isa>
struct VnniInt8KeyTile : IntegerKeyTile<Isa, PKV_INT8> {
  static size_t query_bytes(uint32_t dim) { return ByteQuery::bytes(dim, 1); }

  // The bytes of each 4 dims: their high bytes, then their low bytes.
  static void prepare(const float* row, uint32_t dim, float, void* to) {
    const __m128i order = _mm_setr_epi8(1, 3, 5, 7, 0, 2, 4, 6, 9, 11, 13, 15, 8, 10, 12, 14);
    byte_query<Isa>(row, dim, max_dim, 128, order, static_cast<ByteQuery*>(to));
  }

  template <unsigned rows, unsigned tiles>
  static void scores(const void* q, uint32_t dim, TilePointers at, TilePointers next,
                     ScoreRow* scores) {
    // As many vectors of tokens at once as there are registers for their sums.
    constexpr unsigned count = tiles * vectors_per_tile<Isa>,
                       fit = rows < Isa::byte_sums ? Isa::byte_sums / rows : 1,
                       at_once = fit < count ? fit : count;
    for (unsigned i = 0; i < count; i += at_once)
      scores_of_vectors<rows, at_once>(static_cast<const ByteQuery*>(q), dim, at, next, i, scores);
  }

 private:
  // The scores of `count` vectors of tokens, from number `first` of the tiles on.
  template <unsigned rows, unsigned count>
  static void scores_of_vectors(const ByteQuery* query, uint32_t dim, TilePointers at,
                                TilePointers next, unsigned first, ScoreRow* scores) {
    using U = Words<Isa>;
    using I = Ints<Isa>;
    using F = Floats<Isa>;
    constexpr unsigned vectors = vectors_per_tile<Isa>;
    const size_t query_stride = query_bytes(dim) / 4;
    const int32_t* const bytes = query->words() + 1;
    const U sign(0x80808080u);
    const unsigned char *tokens[count], *ahead[count];
    I high[count][rows], low[count][rows];
    PKV_UNROLL
    for (unsigned i = 0; i < count; i++) {
      tokens[i] = at[(first + i) / vectors] + (first + i) % vectors * F::size * 4;
      ahead[i] = next[(first + i) / vectors];
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++) {
        high[i][r] = I(0);
        low[i][r] = I(query->words()[r * query_stride]);
      }
    }
    for (uint32_t word = 0; word < dim / 4; word++) {
      U k[count];
      PKV_UNROLL
      for (unsigned i = 0; i < count; i++) {
        if (i % vectors == 0) prefetch_lines<Isa>(ahead[i] + word * 64, 64);
        k[i] = load_words<Isa>(tokens[i] + word * 64) ^ sign;
      }
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++) {
        const int32_t* const pair = bytes + r * query_stride + 2 * word;
        const U q_high(static_cast<uint32_t>(pair[0])), q_low(static_cast<uint32_t>(pair[1]));
        PKV_UNROLL
        for (unsigned i = 0; i < count; i++) {
          high[i][r] = Isa::dot_bytes(high[i][r], k[i], q_high);
          low[i][r] = Isa::dot_bytes(low[i][r], k[i], q_low);
        }
      }
    }
    PKV_UNROLL
    for (unsigned i = 0; i < count; i++) {
      if (i % vectors == 0) prefetch_lines<Isa>(ahead[i] + size_t{dim} * tile_tokens, 64);
      const F scale = as_floats<Isa>(load_words<Isa>(tokens[i] + size_t{dim} * tile_tokens));
      const unsigned tile = (first + i) / vectors, n = (first + i) % vectors;
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++) {
        const F row_scale(reinterpret_cast<const float*>(query)[r * query_stride]);
        (sum_of_bytes<Isa>(high[i][r], low[i][r]) * (scale * row_scale))
            .store_aligned(scores[tile * rows + r] + n * F::size);
      }
    }
  }
};

template <class Isa>
struct VnniInt8ValueTile : IntegerValueTile<Isa, PKV_INT8> {
  using Generic = IntegerValueTile<Isa, PKV_INT8>;

  template <unsigned rows, unsigned tiles>
  static void accumulate(TilePointers at, TilePointers next, const ScoreRow* weights, uint32_t dim,
                         float* out) {
    TileScales<Isa, 1> scales;
    Generic::template load_scales<tiles>(at, next, dim, scales);
    Weights<rows, tiles> weight;
    // The bytes of each 4 tokens: the low bytes of tokens 0, 2, 1, 3, which is their order in V,
    // then their high bytes.
    const __m128i order = _mm_setr_epi8(0, 4, 2, 6, 1, 5, 3, 7, 8, 12, 10, 14, 9, 13, 11, 15);
    byte_weights<Isa, rows, tiles, 1>(weights, scales, 1, order, weight.w, weight.units);
    constexpr unsigned vectors = rows == 1                    ? 4
                                 : 2 * rows <= Isa::byte_sums ? 2
                                                              : 1,
                       lanes = Floats<Isa>::size;
    uint32_t d = 0;
    for (; d + vectors * lanes <= dim; d += vectors * lanes)
      weight.template add<vectors>(at, next, d, dim, out);
    for (; d < dim; d += lanes) weight.template add<1>(at, next, d, dim, out);
  }

 private:
  template <unsigned rows, unsigned tiles>
  struct Weights {
    alignas(64) ByteWords w[tiles * rows][1];
    WeightUnit units[rows];

    // Adds up `vectors` vectors of dims, from d on.
    template <unsigned vectors>
    [[gnu::always_inline]] void add(TilePointers at, TilePointers next, uint32_t d, uint32_t dim,
                                    float* out) const {
      using U = Words<Isa>;
      constexpr unsigned bytes = U::size * 4;
      const ByteWords* const words = reloaded(w[0]);
      Ints<Isa> high[rows][vectors], low[rows][vectors];
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++) {
        PKV_UNROLL
        for (unsigned n = 0; n < vectors; n++) high[r][n] = low[r][n] = Ints<Isa>(0);
      }
      PKV_UNROLL
      for (unsigned part = 0; part < 4 * tiles; part++) {  // 4 tokens each
        const unsigned i = part / 4, quad = part % 4;
        prefetch_part<Isa, vectors * bytes>(next[i] + size_t{d} * tile_tokens, quad);
        U v[vectors];
        PKV_UNROLL
        for (unsigned n = 0; n < vectors; n++)
          v[n] = load_words<Isa>(at[i] + (size_t{quad} * dim + d) * 4 + n * bytes);
        PKV_UNROLL
        for (unsigned r = 0; r < rows; r++) {
          const uint32_t* const pair = words[i * rows + r] + 2 * quad;
          const U w_low(pair[0]), w_high(pair[1]);
          PKV_UNROLL
          for (unsigned n = 0; n < vectors; n++) {
            low[r][n] = Isa::dot_bytes(low[r][n], w_low, v[n]);
            high[r][n] = Isa::dot_bytes(high[r][n], w_high, v[n]);
          }
        }
      }
      add_bytes<Isa>(high, low, units, out + d, dim);
    }
  };
};

template <MultipliesBytes Isa>
struct KeyTile<Isa, PKV_INT8> : VnniInt8KeyTile<Isa> {};
template <MultipliesBytes Isa>
struct ValueTile<Isa, PKV_INT8> : VnniInt8ValueTile<Isa> {};

}  // namespace pkv::kernels
