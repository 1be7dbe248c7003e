// K and V of 16 tokens in plain rows of blocks (q8_0, q4_0), multiplied where they are.
//
// K: queries are rounded to 16-bit integers, as for int8. A block has one sum of products in each
// lane, which is multiplied by its scale and added to the lanes of the row.
// V: a weight is multiplied by the scale of each block of its token.
#pragma once

#include "kernels/plain_tiles.hpp"
#include "kernels/read_row.hpp"

namespace pkv::kernels {

// The scales of all blocks of 16 tokens.
template <class Isa>
struct TileBlockScales {
  alignas(64) float of[max_dim / block_dims][tile_tokens];

  TileBlockScales(const PlainTile& tile, uint32_t block_bytes, uint32_t blocks) {
    const unsigned char* rows[tile_tokens];
    for (uint32_t t = 0; t < tile_tokens; t++) rows[t] = tile.row(t);
    for (uint32_t b = 0; b < blocks; b++) {
      alignas(64) uint16_t bits[tile_tokens];
      for (uint32_t t = 0; t < tile_tokens; t++)
        __builtin_memcpy(bits + t, rows[t] + size_t{b} * block_bytes, sizeof bits[t]);
      for (uint32_t t = 0; t < tile_tokens; t += Floats<Isa>::size)
        Isa::load_f16(bits + t).store_aligned(of[b] + t);
    }
  }
};

template <class Isa, pkv_dtype dtype>
struct BlockKeys {
  static constexpr unsigned max_tiles = 1;
  static size_t query_bytes(uint32_t dim) { return IntegerQuery::bytes(dim); }
  static void prepare(const float* row, uint32_t dim, float, void* to) {
    IntegerQuery* const query = static_cast<IntegerQuery*>(to);
    query->scale = query_pairs<Isa, 2>(row, dim, query->pairs());
  }

  template <unsigned rows, unsigned tiles>
  static void scores(const void* q, uint32_t dim, TilePointers at, TilePointers next,
                     ScoreRow* scores) {
    constexpr unsigned tokens = plain_tokens<Isa, rows>, lanes = Floats<Isa>::size;
    const PlainTile &tile = PlainTile::of(*at), &ahead = PlainTile::of(*next);
    const uint32_t blocks = dim / block_dims;
    const TileBlockScales<Isa> scales(tile, block_bytes, blocks);
    const IntegerQuery* query[rows];
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++)
      query[r] = reinterpret_cast<const IntegerQuery*>(static_cast<const unsigned char*>(q) +
                                                       r * query_bytes(dim));
    TotalScores<Isa, rows, tokens> totals;
    for (uint32_t t = 0; t < tile_tokens; t += tokens) {
      Floats<Isa> sum[rows * tokens];
      PKV_UNROLL
      for (Floats<Isa>& each : sum) each = Floats<Isa>(0.0f);
      const unsigned char* k[tokens];
      PKV_UNROLL
      for (unsigned i = 0; i < tokens; i++) {
        k[i] = tile.row(t + i);
        prefetch_row<Isa>(ahead.row(t + i), size_t{blocks} * block_bytes);
      }
      for (uint32_t b = 0; b < blocks; b++) {
        PKV_UNROLL
        for (unsigned i = 0; i < tokens; i++) {
          const Halves k_of(k[i] + size_t{b} * block_bytes + scale_bytes(dtype));
          const Floats<Isa> scale(scales.of[b][t + i]);
          PKV_UNROLL
          for (unsigned r = 0; r < rows; r++) {
            const uint32_t* const pairs = query[r]->pairs() + size_t{b} * block_dims / 2;
            Ints<Isa> dot(0);
            PKV_UNROLL
            for (unsigned n = 0; n < Halves::vectors; n++)
              dot = Isa::dot_pairs(dot, k_of.vector[n], load_words<Isa>(pairs + n * lanes));
            sum[r * tokens + i] = Isa::fma(xsimd::to_float(dot), scale, sum[r * tokens + i]);
          }
        }
      }
      totals.put(sum, t, scores);
    }
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) {
      for (uint32_t t = 0; t < tile_tokens; t += lanes)
        (Floats<Isa>::load_aligned(scores[r] + t) * Floats<Isa>(query[r]->scale))
            .store_aligned(scores[r] + t);
    }
  }

 private:
  static constexpr uint32_t block_bytes = row_bytes(dtype, block_dims);

  // The elements of a block as 16-bit numbers, in the order of the dims.
  struct Halves {
    static constexpr unsigned vectors = block_dims / 2 / Floats<Isa>::size;
    Words<Isa> vector[vectors];

    explicit Halves(const unsigned char* elements) {
      if constexpr (dtype == PKV_Q8_0) {
        for (unsigned n = 0; n < vectors; n++)
          vector[n] = Isa::signed_halves(elements + n * (block_dims / vectors));
      } else {
        Isa::split_nibbles(elements, vector);
        for (Words<Isa>& each : vector)
          each = Isa::add_halves(each, Words<Isa>(0xFFF8FFF8u));  // -8
      }
    }
  };
};

template <class Isa, pkv_dtype dtype>
struct BlockValues {
  static constexpr unsigned max_tiles = 1;

  template <unsigned rows, unsigned tiles>
  static void accumulate(TilePointers at, TilePointers next, const ScoreRow* weights, uint32_t dim,
                         float* out) {
    const PlainTile &tile = PlainTile::of(*at), &ahead = PlainTile::of(*next);
    const uint32_t blocks = dim / block_dims;
    const TileBlockScales<Isa> scales(tile, block_bytes, blocks);
    alignas(64) ScoreRow scaled[max_dim / block_dims][rows];
    for (uint32_t b = 0; b < blocks; b++) {
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++)
        for (uint32_t t = 0; t < tile_tokens; t += Floats<Isa>::size)
          (Floats<Isa>::load_aligned(weights[r] + t) * Floats<Isa>::load_aligned(scales.of[b] + t))
              .store_aligned(scaled[b][r] + t);
    }
    const unsigned char* at_row[tile_tokens];
    for (uint32_t t = 0; t < tile_tokens; t++) {
      at_row[t] = tile.row(t);
      prefetch_row<Isa>(ahead.row(t), size_t{blocks} * block_bytes);
    }
    for (uint32_t b = 0; b < blocks; b++) add_block<rows>(at_row, b, scaled[b], dim, out);
  }

  // As FloatValueTile::unpack.
  static void unpack(const unsigned char* at, uint32_t dim, float* to, size_t token_stride,
                     size_t panel_stride) {
    alignas(64) float row[max_dim];
    for (uint32_t t = 0; t < tile_tokens; t++) {
      read_blocks<Isa, dtype>(PlainTile::of(at).row(t), dim, row);
      for (uint32_t d = 0; d < dim; d += tile_tokens)
        __builtin_memcpy(to + d / tile_tokens * panel_stride + t * token_stride, row + d,
                         tile_tokens * sizeof(float));
    }
  }

 private:
  static constexpr uint32_t block_bytes = row_bytes(dtype, block_dims);

  // Adds block b of all tokens, some vectors at a time.
  template <unsigned rows>
  [[gnu::always_inline]] static inline void add_block(const unsigned char* const* at_row,
                                                      uint32_t b, const ScoreRow* weights,
                                                      uint32_t dim, float* out) {
    constexpr unsigned lanes = Floats<Isa>::size, of_block = block_dims / lanes,
                       vectors = rows > 2 || of_block < 4 ? 2 : 4;
    PKV_UNROLL
    for (unsigned first = 0; first < of_block; first += vectors) {
      float* const to = out + size_t{b} * block_dims + first * lanes;
      Floats<Isa> sum[rows][vectors];
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++) {
        PKV_UNROLL
        for (unsigned n = 0; n < vectors; n++)
          sum[r][n] = Floats<Isa>::load_unaligned(to + size_t{r} * dim + n * lanes);
      }
      for (uint32_t t = 0; t < tile_tokens; t++) {
        const unsigned char* const elements =
            at_row[t] + size_t{b} * block_bytes + scale_bytes(dtype);
        Floats<Isa> v[vectors];
        PKV_UNROLL
        for (unsigned n = 0; n < vectors; n++) v[n] = load(elements, first + n);
        PKV_UNROLL
        for (unsigned r = 0; r < rows; r++) {
          const Floats<Isa> weight(weights[r][t]);
          PKV_UNROLL
          for (unsigned n = 0; n < vectors; n++) sum[r][n] = Isa::fma(weight, v[n], sum[r][n]);
        }
      }
      PKV_UNROLL
      for (unsigned r = 0; r < rows; r++) {
        PKV_UNROLL
        for (unsigned n = 0; n < vectors; n++)
          sum[r][n].store_unaligned(to + size_t{r} * dim + n * lanes);
      }
    }
  }

  // Vector number n of the elements of a block, without its scale.
  static Floats<Isa> load(const unsigned char* elements, unsigned n) {
    constexpr unsigned lanes = Floats<Isa>::size, vectors_per_half = block_dims / 2 / lanes;
    if constexpr (dtype == PKV_Q8_0) {
      return xsimd::to_float(Isa::signed_lanes(elements + n * lanes));
    } else {
      const Words<Isa> both = Isa::widen_bytes(elements + n % vectors_per_half * lanes);
      const Words<Isa> one = n < vectors_per_half ? both & Words<Isa>(15u) : both >> 4;
      return xsimd::to_float(same_bits<Ints<Isa>>(one) - Ints<Isa>(8));
    }
  }
};

template <class Isa>
struct PlainKeys<Isa, PKV_Q8_0> : BlockKeys<Isa, PKV_Q8_0> {};
template <class Isa>
struct PlainKeys<Isa, PKV_Q4_0> : BlockKeys<Isa, PKV_Q4_0> {};
template <class Isa>
struct PlainValues<Isa, PKV_Q8_0> : BlockValues<Isa, PKV_Q8_0> {};
template <class Isa>
struct PlainValues<Isa, PKV_Q4_0> : BlockValues<Isa, PKV_Q4_0> {};

}  // namespace pkv::kernels
