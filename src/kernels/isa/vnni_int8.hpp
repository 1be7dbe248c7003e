// int8 with AVX-512 VNNI: V is multiplied in its layout, K with its sign bits flipped, which adds
// 128.
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
    // There are enough registers for the sums of 8 pairs of a row and a tile.
    constexpr unsigned at_once = tiles * rows > 8 ? 1 : tiles;
    for (unsigned i = 0; i < tiles; i += at_once)
      scores_of_tiles<rows, at_once>(static_cast<const ByteQuery*>(q), dim, at + i, next + i,
                                     scores + i * rows);
  }

 private:
  template <unsigned rows, unsigned tiles>
  static void scores_of_tiles(const ByteQuery* first, uint32_t dim, TilePointers at,
                              TilePointers next, ScoreRow* scores) {
    const size_t query_stride = query_bytes(dim) / 4;
    const int32_t* const bytes = first->words() + 1;
    const __m512i sign = _mm512_set1_epi8(-128);
    __m512i high[tiles * rows], low[tiles * rows];
    PKV_UNROLL
    for (unsigned j = 0; j < tiles * rows; j++) {
      high[j] = _mm512_setzero_si512();
      low[j] = _mm512_set1_epi32(first->words()[j % rows * query_stride]);
    }
    for (uint32_t word = 0; word < dim / 4; word++) {
      __m512i k[tiles];
      PKV_UNROLL
      for (unsigned i = 0; i < tiles; i++) {
        prefetch_lines<Isa>(next[i] + word * 64, 64);
        k[i] = _mm512_xor_si512(_mm512_loadu_si512(at[i] + word * 64), sign);
      }
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++) {
        const int32_t* const pair = bytes + r * query_stride + 2 * word;
        const __m512i q_high = _mm512_set1_epi32(pair[0]), q_low = _mm512_set1_epi32(pair[1]);
        PKV_UNROLL
        for (unsigned i = 0; i < tiles; i++) {
          high[i * rows + r] = _mm512_dpbusd_epi32(high[i * rows + r], k[i], q_high);
          low[i * rows + r] = _mm512_dpbusd_epi32(low[i * rows + r], k[i], q_low);
        }
      }
    }
    PKV_UNROLL
    for (unsigned i = 0; i < tiles; i++) {
      prefetch_lines<Isa>(next[i] + size_t{dim} * tile_tokens, 64);
      const __m512 scale = _mm512_loadu_ps(at[i] + size_t{dim} * tile_tokens);
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++) {
        const __m512i sum =
            _mm512_add_epi32(_mm512_slli_epi32(high[i * rows + r], 8), low[i * rows + r]);
        const __m512 row_scale =
            _mm512_set1_ps(reinterpret_cast<const float*>(first)[r * query_stride]);
        _mm512_store_ps(scores[i * rows + r],
                        _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(scale, row_scale)));
      }
    }
  }
};

template <class Isa>
struct VnniInt8ValueTile : IntegerValueTile<Isa, PKV_INT8> {
  template <unsigned rows, unsigned tiles>
  static void accumulate(TilePointers at, TilePointers next, const ScoreRow* weights, uint32_t dim,
                         float* out) {
    TileScales<Isa, 1> scales;
    PKV_UNROLL
    for (unsigned i = 0; i < tiles; i++) {
      prefetch_lines<Isa>(next[i] + size_t{dim} * tile_tokens, 64);
      scales[i][0][0] = _mm512_loadu_ps(at[i] + size_t{dim} * tile_tokens);
    }
    Weights<rows, tiles> weight;
    // The bytes of each 4 tokens: the low bytes of tokens 0, 2, 1, 3, which is their order in V,
    // then their high bytes.
    const __m128i order = _mm_setr_epi8(0, 4, 2, 6, 1, 5, 3, 7, 8, 12, 10, 14, 9, 13, 11, 15);
    byte_weights<Isa, rows, tiles, 1>(weights, scales, 1, order, weight.w, weight.units);
    // There are enough registers for the sums of 8 vectors of dims.
    constexpr unsigned vectors = rows > 4 ? 1 : rows > 1 ? 2 : 4;
    uint32_t d = 0;
    for (; d + vectors * 16 <= dim; d += vectors * 16)
      weight.template add<vectors>(at, next, d, dim, out);
    for (; d < dim; d += 16) weight.template add<1>(at, next, d, dim, out);
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
      const ByteWords* const words = reloaded(w[0]);
      __m512i high[rows][vectors], low[rows][vectors];
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++) {
        PKV_UNROLL
        for (unsigned n = 0; n < vectors; n++) high[r][n] = low[r][n] = _mm512_setzero_si512();
      }
      PKV_UNROLL
      for (unsigned part = 0; part < 4 * tiles; part++) {  // 4 tokens each
        const unsigned i = part / 4, quad = part % 4;
        const size_t byte = (size_t{quad} * dim + d) * 4;
        prefetch_lines<Isa>(next[i] + size_t{d} * tile_tokens + quad * vectors * 64, vectors * 64);
        __m512i v[vectors];
        PKV_UNROLL
        for (unsigned n = 0; n < vectors; n++) v[n] = _mm512_loadu_si512(at[i] + byte + n * 64);
        PKV_UNROLL
        for (unsigned r = 0; r < rows; r++) {
          const int32_t* const pair = words[i * rows + r] + 2 * quad;
          const __m512i w_low = _mm512_set1_epi32(pair[0]), w_high = _mm512_set1_epi32(pair[1]);
          PKV_UNROLL
          for (unsigned n = 0; n < vectors; n++) {
            low[r][n] = _mm512_dpbusd_epi32(low[r][n], w_low, v[n]);
            high[r][n] = _mm512_dpbusd_epi32(high[r][n], w_high, v[n]);
          }
        }
      }
      add_bytes<Isa>(high, low, units, out + d, dim);
    }
  };
};

}  // namespace pkv::kernels
