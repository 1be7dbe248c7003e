// Copies stored rows to packed tiles and back. K of a whole tile is transposed. In a part of a tile
// each token is written by itself, so that the slots of other tokens stay unchanged.
#pragma once

#include "kernels/quantise.hpp"
#include "kernels/tile_layout.h"
#include "kernels/transpose.hpp"

namespace pkv::kernels {

// The tokens [begin, end) of a tile.
struct TokenRange {
  uint32_t begin, end;
  bool whole_tile() const { return begin == 0 && end == tile_tokens; }
};

template <class Isa, pkv_dtype dtype>
struct Pack {
  static constexpr unsigned p = interleaved(dtype), bits = element_bits(dtype), bytes = bits / 8;
  static constexpr unsigned unit = p * bits / 8;  // bytes that lie together in K

  static void pack_k(const unsigned char* const* rows, TokenRange range, uint32_t dim,
                     unsigned char* tile) {
    if (range.whole_tile() && dim * bits % 128 == 0)
      transpose_k(rows, dim, tile);
    else
      for (uint32_t t = range.begin; t < range.end; t++) scatter_k(rows[t], t, dim, tile);
    pack_scales(rows, range, dim, tile);
  }

  static void row_of_k(const unsigned char* tile, uint32_t token, uint32_t dim,
                       unsigned char* row) {
    const uint32_t units = dim / p;
    for (uint32_t i = 0; i < units; i++)
      __builtin_memcpy(row + i * unit, tile + (size_t{i} * tile_tokens + token) * unit, unit);
    row_scales(tile, token, dim, row);
  }

  static void pack_v(const unsigned char* const* rows, TokenRange range, uint32_t dim,
                     unsigned char* tile) {
    if constexpr (p == 1) {
      for (uint32_t t = range.begin; t < range.end; t++)
        __builtin_memcpy(tile + size_t{t} * dim * bytes, rows[t], size_t{dim} * bytes);
    } else {
      for (uint32_t t = range.begin; t < range.end; t++) {
        if (dtype == PKV_BF16 && t % 2 == 0 && t + 1 < range.end) {
          interleave(rows[t], rows[t + 1], dim, tile + size_t{t} * dim * 2);
          t++;
        } else {
          scatter_v(rows[t], t, dim, tile);
        }
      }
    }
    pack_scales(rows, range, dim, tile);
  }

  static void row_of_v(const unsigned char* tile, uint32_t token, uint32_t dim,
                       unsigned char* row) {
    if constexpr (bits == 4) {
      for (uint32_t d = 0; d < dim; d += 2) {
        const uint32_t even = packed_v_index(dtype, dim, token, d),
                       odd = packed_v_index(dtype, dim, token, d + 1);
        const int low = tile[even / 2] >> (even % 2 * 4) & 15,
                  high = tile[odd / 2] >> (odd % 2 * 4) & 15;
        row[d / 2] = static_cast<unsigned char>(low | high << 4);
      }
    } else {
      const size_t first = packed_v_index(dtype, dim, token, 0);
      for (uint32_t d = 0; d < dim; d++)
        __builtin_memcpy(row + d * bytes, tile + (first + size_t{d} * p) * bytes, bytes);
    }
    row_scales(tile, token, dim, row);
  }

 private:
  // The 32-bit words of the rows are transposed. If a dtype's elements do not lie together, the
  // words are then split.
  static void transpose_k(const unsigned char* const* rows, uint32_t dim, unsigned char* tile) {
    const uint32_t words = dim * bits / 32;
    if constexpr (p * bits == 32) {
      transpose<Isa>(rows, words, tile);
    } else {
      for (uint32_t word = 0; word < words; word += 4) {
        alignas(64) unsigned char columns[4 * tile_tokens * 4];
        transpose_four_words<Isa>(rows, word, columns);
        for (unsigned i = 0; i < 4; i++)
          take_apart(columns + i * tile_tokens * 4, tile + (word + i) * tile_tokens * 4);
      }
    }
  }

  // Turns 16 words of 2 or 4 elements each into 2 or 4 runs of 16 elements.
  static void take_apart(const unsigned char* words_at, unsigned char* to) {
    constexpr unsigned lanes = Words<Isa>::size;
    for (unsigned t = 0; t < tile_tokens; t += lanes) {
      const Words<Isa> words = load_words<Isa>(words_at + t * 4);
      if constexpr (bits == 16) {
        Isa::narrow(to + t * 2, words);
        Isa::narrow(to + (tile_tokens + t) * 2, words >> 16);
      } else {
        for (unsigned e = 0; e < 4; e++)
          narrow_bytes<Isa>(to + e * tile_tokens + t, words >> (8 * static_cast<int>(e)));
      }
    }
  }

  static void scatter_k(const unsigned char* row, uint32_t token, uint32_t dim,
                        unsigned char* tile) {
    const uint32_t units = dim / p;
    for (uint32_t i = 0; i < units; i++)
      __builtin_memcpy(tile + (size_t{i} * tile_tokens + token) * unit, row + i * unit, unit);
  }

  static void scatter_v(const unsigned char* row, uint32_t token, uint32_t dim,
                        unsigned char* tile) {
    if constexpr (bits == 4) {
      for (uint32_t d = 0; d < dim; d++) {
        const uint32_t at = packed_v_index(dtype, dim, token, d);
        const int nibble = row[d / 2] >> (d % 2 * 4) & 15,
                  other = tile[at / 2] & (at % 2 != 0 ? 0x0F : 0xF0);
        tile[at / 2] = static_cast<unsigned char>(other | nibble << (at % 2 * 4));
      }
    } else {
      const size_t first = packed_v_index(dtype, dim, token, 0);
      for (uint32_t d = 0; d < dim; d++)
        __builtin_memcpy(tile + (first + size_t{d} * p) * bytes, row + d * bytes, bytes);
    }
  }

  static void interleave(const unsigned char* even, const unsigned char* odd, uint32_t dim,
                         unsigned char* to) {
    for (uint32_t d = 0; d < dim; d += Words<Isa>::size) {
      const Words<Isa> words = Isa::widen(even + d * 2) | (Isa::widen(odd + d * 2) << 16);
      words.store_unaligned(reinterpret_cast<uint32_t*>(to + d * 4));
    }
  }

  static void pack_scales(const unsigned char* const* rows, TokenRange range, uint32_t dim,
                          unsigned char* tile) {
    constexpr uint32_t size = scale_bytes(dtype);
    unsigned char* const to = tile + size_t{elements_bytes(dtype, dim)} * tile_tokens;
    for (uint32_t i = 0; i < scales_per_row(dtype, dim); i++)
      for (uint32_t t = range.begin; t < range.end; t++)
        __builtin_memcpy(to + (i * tile_tokens + t) * size,
                         rows[t] + elements_bytes(dtype, dim) + i * size, size);
  }

  static void row_scales(const unsigned char* tile, uint32_t token, uint32_t dim,
                         unsigned char* row) {
    constexpr uint32_t size = scale_bytes(dtype);
    const unsigned char* const from = tile + size_t{elements_bytes(dtype, dim)} * tile_tokens;
    for (uint32_t i = 0; i < scales_per_row(dtype, dim); i++)
      __builtin_memcpy(row + elements_bytes(dtype, dim) + i * size,
                       from + (i * tile_tokens + token) * size, size);
  }
};

}  // namespace pkv::kernels
