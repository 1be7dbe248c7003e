// int4 with VNNI. A shift and two masks turn the nibbles of a word into bytes: n + 8 for K,
// 16 n for V.
#pragma once

#include "kernels/isa/vnni_bytes.hpp"

namespace pkv::kernels {

template <class Isa>
struct VnniInt4KeyTile : IntegerKeyTile<Isa, PKV_INT4> {
  static size_t query_bytes(uint32_t dim) {
    return ByteQuery::bytes(dim, scales_per_row(PKV_INT4, dim));
  }

  // The bytes of each 8 dims: the high bytes of the even dims, those of the odd dims, then the low
  // bytes in the same order.
  static void prepare(const float* row, uint32_t dim, float, void* to) {
    const __m128i order = _mm_setr_epi8(1, 5, 9, 13, 3, 7, 11, 15, 0, 4, 8, 12, 2, 6, 10, 14);
    byte_query<Isa>(row, dim, int4_group_size, 8, order, static_cast<ByteQuery*>(to));
  }

  template <unsigned rows, unsigned tiles>
  static void scores(const void* q, uint32_t dim, TilePointers at, TilePointers next,
                     ScoreRow* scores) {
    // As many vectors of tokens at once as there are registers for their sums.
    constexpr unsigned count = tiles * vectors, most = count < 2 ? count : 2,
                       at_once = rows * most <= Isa::byte_sums ? most : 1;
    for (unsigned i = 0; i < count; i += at_once)
      scores_of_vectors<rows, at_once>(static_cast<const ByteQuery*>(q), dim, at, next, i, scores);
  }

 private:
  using U = Words<Isa>;
  using I = Ints<Isa>;
  using F = Floats<Isa>;
  static constexpr unsigned vectors = vectors_per_tile<Isa>;

  // The scores of `count` vectors of tokens, from number `first` of the tiles on.
  template <unsigned rows, unsigned count>
  static void scores_of_vectors(const ByteQuery* query, uint32_t dim, TilePointers at,
                                TilePointers next, unsigned first, ScoreRow* scores) {
    const uint32_t groups = dim / int4_group_size;
    const size_t query_stride = query_bytes(dim) / 4;
    ScaleGroup<rows, count> group;
    PKV_UNROLL
    for (unsigned i = 0; i < count; i++) {
      const unsigned tile = (first + i) / vectors, n = (first + i) % vectors;
      group.tokens[i] = at[tile] + n * F::size * 4;
      group.next[i] = next[tile];
      group.scales[i] = at[tile] + size_t{dim} * tile_tokens / 2 + n * F::size * 2;
    }
    group.sums = query->words();
    group.bytes = group.sums + scales_per_row(PKV_INT4, dim);
    PKV_UNROLL
    for (F& total : group.total) total = F(0.0f);
    for (uint32_t g = 0; g < groups; g++) group.template add<4>(query_stride);
    if (dim % int4_group_size != 0) group.template add<2>(query_stride);
    PKV_UNROLL
    for (unsigned i = 0; i < count; i++) {
      const unsigned tile = (first + i) / vectors, n = (first + i) % vectors;
      if (i % vectors == 0) prefetch_lines<Isa>(group.next[i], 128);
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++)
        (group.total[i * rows + r] * F(reinterpret_cast<const float*>(query)[r * query_stride]))
            .store_aligned(scores[tile * rows + r] + n * F::size);
    }
  }

  template <unsigned rows, unsigned count>
  struct ScaleGroup {
    const unsigned char *tokens[count], *next[count], *scales[count];
    const int32_t *sums, *bytes;  // of the first row
    F total[count * rows];

    // Adds the products of 8 * words dims, which share a scale, and moves on to the next ones.
    template <unsigned words>
    [[gnu::always_inline]] void add(size_t query_stride) {
      const U offset(0x08080808u), mask(0x0F0F0F0Fu);
      I high[count * rows], low[count * rows];
      PKV_UNROLL
      for (unsigned j = 0; j < count * rows; j++) {
        high[j] = I(0);
        low[j] = I(sums[j % rows * query_stride]);
      }
      PKV_UNROLL
      for (unsigned word = 0; word < words; word++) {
        U k[count][2];  // n + 8 of the even dims, and of the odd ones
        PKV_UNROLL
        for (unsigned i = 0; i < count; i++) {
          if (i % vectors == 0) prefetch_lines<Isa>(next[i] + word * 64, 64);
          const U nibbles = load_words<Isa>(tokens[i] + word * 64);
          k[i][0] = (nibbles ^ offset) & mask;
          k[i][1] = ((nibbles >> 4) ^ offset) & mask;
        }
        PKV_UNROLL
        for (unsigned odd = 0; odd < 2; odd++) {
          PKV_UNROLL
          for (unsigned r = 0; r < rows; r++) {
            const int32_t* const q = bytes + r * query_stride + 4 * word + odd;
            const U q_high(static_cast<uint32_t>(q[0])), q_low(static_cast<uint32_t>(q[2]));
            PKV_UNROLL
            for (unsigned i = 0; i < count; i++) {
              high[i * rows + r] = Isa::dot_bytes(high[i * rows + r], k[i][odd], q_high);
              low[i * rows + r] = Isa::dot_bytes(low[i * rows + r], k[i][odd], q_low);
            }
          }
        }
      }
      PKV_UNROLL
      for (unsigned i = 0; i < count; i++) {
        const F scale = token_scales<Isa, PKV_INT4>(scales[i], 0);
        PKV_UNROLL
        for (unsigned j = i * rows; j < (i + 1) * rows; j++)
          total[j] = Isa::fma(sum_of_bytes<Isa>(high[j], low[j]), scale, total[j]);
        tokens[i] += words * 64;
        next[i] += words * 64;
        scales[i] += 2 * tile_tokens;
      }
      sums++;
      bytes += 4 * words;
    }
  };
};

template <class Isa>
struct VnniInt4ValueTile : IntegerValueTile<Isa, PKV_INT4> {
  using Generic = IntegerValueTile<Isa, PKV_INT4>;
  static constexpr unsigned max_scales = Generic::max_scales;

  template <unsigned rows, unsigned tiles>
  static void accumulate(TilePointers at, TilePointers next, const ScoreRow* weights, uint32_t dim,
                         float* out) {
    TileScales<Isa, max_scales> scales;
    Generic::template load_scales<tiles>(at, next, dim, scales);
    Weights<rows, tiles> weight;
    weight.quantise(weights, scales, scales_per_row(PKV_INT4, dim));
    constexpr unsigned vectors = 2 * rows <= Isa::byte_sums ? 2 : 1, lanes = Floats<Isa>::size;
    uint32_t d = 0;
    for (; d + vectors * lanes <= dim; d += vectors * lanes)
      weight.template add<vectors>(at, next, d, dim, out);
    for (; d < dim; d += lanes) weight.template add<1>(at, next, d, dim, out);
  }

 private:
  template <unsigned rows, unsigned tiles>
  struct Weights {
    alignas(64) ByteWords w[tiles * rows][max_scales];
    WeightUnit units[rows];

    // The bytes of each 8 tokens: the low bytes of tokens 0, 4, 1, 5 and of 2, 6, 3, 7, which is
    // the order of nibbles in V, then their high bytes.
    void quantise(const ScoreRow* weights, const TileScales<Isa, max_scales>& scales,
                  unsigned groups) {
      const __m128i order = _mm_setr_epi8(0, 8, 2, 10, 4, 12, 6, 14, 1, 9, 3, 11, 5, 13, 7, 15);
      byte_weights<Isa, rows, tiles, max_scales>(weights, scales, groups, order, w, units);
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++) units[r].factor /= 16;
    }

    // Adds up `vectors` vectors of dims that share a scale, from d on.
    template <unsigned vectors>
    [[gnu::always_inline]] void add(TilePointers at, TilePointers next, uint32_t d, uint32_t dim,
                                    float* out) const {
      using U = Words<Isa>;
      constexpr unsigned bytes = U::size * 4;
      const U mask(0xF0F0F0F0u);
      const unsigned g = d / int4_group_size;
      Ints<Isa> high[rows][vectors], low[rows][vectors];
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++) {
        PKV_UNROLL
        for (unsigned n = 0; n < vectors; n++) high[r][n] = low[r][n] = Ints<Isa>(0);
      }
      PKV_UNROLL
      for (unsigned part = 0; part < 2 * tiles; part++) {  // 8 tokens each
        const unsigned i = part / 2, oct = part % 2;
        prefetch_part<Isa, vectors * bytes>(next[i] + size_t{d} * tile_tokens / 2, oct);
        U v[vectors][2];  // 16 n of four of the tokens, and of the other four
        PKV_UNROLL
        for (unsigned n = 0; n < vectors; n++) {
          const U nibbles = load_words<Isa>(at[i] + (size_t{oct} * dim + d) * 4 + n * bytes);
          v[n][0] = (nibbles << 4) & mask;
          v[n][1] = nibbles & mask;
        }
        PKV_UNROLL
        for (unsigned upper = 0; upper < 2; upper++) {
          PKV_UNROLL
          for (unsigned r = 0; r < rows; r++) {
            const uint32_t* const word = w[i * rows + r][g] + 4 * oct + upper;
            const U w_low(word[0]), w_high(word[2]);
            PKV_UNROLL
            for (unsigned n = 0; n < vectors; n++) {
              low[r][n] = Isa::dot_bytes(low[r][n], w_low, v[n][upper]);
              high[r][n] = Isa::dot_bytes(high[r][n], w_high, v[n][upper]);
            }
          }
        }
      }
      add_bytes<Isa>(high, low, units, out + d, dim);
    }
  };
};

template <MultipliesBytes Isa>
struct KeyTile<Isa, PKV_INT4> : VnniInt4KeyTile<Isa> {};
template <MultipliesBytes Isa>
struct ValueTile<Isa, PKV_INT4> : VnniInt4ValueTile<Isa> {};

}  // namespace pkv::kernels
