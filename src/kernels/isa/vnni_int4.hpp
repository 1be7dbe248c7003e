// int4 with AVX-512 VNNI. A shift and two masks turn the nibbles of a word into bytes: n + 8 for K,
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
    const uint32_t groups = dim / int4_group_size;
    const size_t query_stride = query_bytes(dim) / 4;
    ScaleGroup<rows, tiles> group;
    PKV_UNROLL
    for (unsigned i = 0; i < tiles; i++) {
      group.tile[i] = at[i];
      group.next[i] = next[i];
      group.scales[i] = at[i] + size_t{dim} * tile_tokens / 2;
    }
    const ByteQuery* const first = static_cast<const ByteQuery*>(q);
    group.sums = first->words();
    group.bytes = group.sums + scales_per_row(PKV_INT4, dim);
    PKV_UNROLL
    for (auto& total : group.total) total = _mm512_setzero_ps();
    for (uint32_t g = 0; g < groups; g++) group.template add<4>(query_stride);
    if (dim % int4_group_size != 0) group.template add<2>(query_stride);
    PKV_UNROLL
    for (unsigned i = 0; i < tiles; i++) {
      prefetch_lines<Isa>(group.next[i], 128);
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++) {
        const __m512 scale =
            _mm512_set1_ps(reinterpret_cast<const float*>(first)[r * query_stride]);
        _mm512_store_ps(scores[i * rows + r], _mm512_mul_ps(group.total[i * rows + r], scale));
      }
    }
  }

 private:
  template <unsigned rows, unsigned tiles>
  struct ScaleGroup {
    const unsigned char *tile[tiles], *next[tiles], *scales[tiles];
    const int32_t *sums, *bytes;  // of the first row
    __m512 total[tiles * rows];

    // Adds the products of 8 * words dims, which share a scale, and moves on to the next ones.
    template <unsigned words>
    [[gnu::always_inline]] void add(size_t query_stride) {
      const __m512i offset = _mm512_set1_epi8(8), mask = _mm512_set1_epi8(15);
      __m512i high[tiles * rows], low[tiles * rows];
      PKV_UNROLL
      for (unsigned j = 0; j < tiles * rows; j++) {
        high[j] = _mm512_setzero_si512();
        low[j] = _mm512_set1_epi32(sums[j % rows * query_stride]);
      }
      PKV_UNROLL
      for (unsigned word = 0; word < words; word++) {
        __m512i k[tiles][2];  // n + 8 of the even dims, and of the odd ones
        PKV_UNROLL
        for (unsigned i = 0; i < tiles; i++) {
          prefetch_lines<Isa>(next[i] + word * 64, 64);
          const __m512i nibbles = _mm512_loadu_si512(tile[i] + word * 64);
          k[i][0] = xor_and(nibbles, offset, mask);
          k[i][1] = xor_and(_mm512_srli_epi32(nibbles, 4), offset, mask);
        }
        PKV_UNROLL
        for (unsigned odd = 0; odd < 2; odd++) {
          PKV_UNROLL
          for (unsigned r = 0; r < rows; r++) {
            const int32_t* const q = bytes + r * query_stride + 4 * word + odd;
            const __m512i q_high = _mm512_set1_epi32(q[0]), q_low = _mm512_set1_epi32(q[2]);
            PKV_UNROLL
            for (unsigned i = 0; i < tiles; i++) {
              high[i * rows + r] = _mm512_dpbusd_epi32(high[i * rows + r], k[i][odd], q_high);
              low[i * rows + r] = _mm512_dpbusd_epi32(low[i * rows + r], k[i][odd], q_low);
            }
          }
        }
      }
      PKV_UNROLL
      for (unsigned i = 0; i < tiles; i++) {
        const __m512 scale = token_scales<Isa, PKV_INT4>(scales[i], 0);
        PKV_UNROLL
        for (unsigned j = i * rows; j < (i + 1) * rows; j++) {
          const __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(high[j], 8), low[j]);
          total[j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, total[j]);
        }
        tile[i] += words * 64;
        next[i] += words * 64;
        scales[i] += 2 * tile_tokens;
      }
      sums++;
      bytes += 4 * words;
    }
  };

  // (x ^ y) & mask
  static __m512i xor_and(__m512i x, __m512i y, __m512i mask) {
    return _mm512_ternarylogic_epi32(x, y, mask, 0x28);
  }
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
    for (uint32_t d = 0; d + int4_group_size <= dim; d += int4_group_size)
      weight.template add<2>(at, next, d, dim, out);
    if (dim % int4_group_size != 0)
      weight.template add<1>(at, next, dim / int4_group_size * int4_group_size, dim, out);
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

    // Adds up a group of dims that share a scale, `vectors` vectors of them, from d on.
    template <unsigned vectors>
    [[gnu::always_inline]] void add(TilePointers at, TilePointers next, uint32_t d, uint32_t dim,
                                    float* out) const {
      const __m512i mask = _mm512_set1_epi8(static_cast<char>(0xF0));
      const unsigned g = d / int4_group_size;
      __m512i high[rows][vectors], low[rows][vectors];
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++) {
        PKV_UNROLL
        for (unsigned n = 0; n < vectors; n++) high[r][n] = low[r][n] = _mm512_setzero_si512();
      }
      PKV_UNROLL
      for (unsigned part = 0; part < 2 * tiles; part++) {  // 8 tokens each
        const unsigned i = part / 2, oct = part % 2;
        __m512i v[vectors][2];  // 16 n of four of the tokens, and of the other four
        PKV_UNROLL
        for (unsigned n = 0; n < vectors; n++) {
          const size_t byte = (size_t{oct} * dim + d + n * 16) * 4;
          prefetch_lines<Isa>(next[i] + size_t{d} * tile_tokens / 2 + (oct * vectors + n) * 64, 64);
          const __m512i nibbles = _mm512_loadu_si512(at[i] + byte);
          v[n][0] = _mm512_and_si512(_mm512_slli_epi32(nibbles, 4), mask);
          v[n][1] = _mm512_and_si512(nibbles, mask);
        }
        PKV_UNROLL
        for (unsigned upper = 0; upper < 2; upper++) {
          PKV_UNROLL
          for (unsigned r = 0; r < rows; r++) {
            const int32_t* const word = w[i * rows + r][g] + 4 * oct + upper;
            const __m512i w_low = _mm512_set1_epi32(word[0]), w_high = _mm512_set1_epi32(word[2]);
            PKV_UNROLL
            for (unsigned n = 0; n < vectors; n++) {
              low[r][n] = _mm512_dpbusd_epi32(low[r][n], w_low, v[n][upper]);
              high[r][n] = _mm512_dpbusd_epi32(high[r][n], w_high, v[n][upper]);
            }
          }
        }
      }
      add_bytes<Isa>(high, low, units, out + d, dim);
    }
  };
};

}  // namespace pkv::kernels
