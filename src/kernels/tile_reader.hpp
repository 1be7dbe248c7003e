// Reads the tiles of a sequence in either layout. Packed tiles are read in place. Plain rows are
// packed into a tile in working memory first, or multiplied where they are (plain_tiles.hpp). Rows
// of other formats (SideView::in_memory) are converted before either, unless the instruction set
// multiplies them.
#pragma once

#include "kernels/dtype_ops.hpp"
#include "kernels/read_row.hpp"
#include "kernels/scratch.h"
#include "kernels/tokens.h"

namespace pkv::kernels {

template <class Isa>
class TileReader {
 public:
  TileReader(const KvView& kv, const SetOps& ops, Scratch& scratch)
      : kv_(kv),
        k_(ops_of(ops, kv.k.dtype)),
        v_(ops_of(ops, kv.v.dtype)),
        latent_(kv.v.data == nullptr),
        plain_k_(plain_ops_of(ops, kv.layout, kv.k)),
        plain_v_(latent_ ? plain_k_ : plain_ops_of(ops, kv.layout, kv.v)),
        k_tiles_(scratch.take<unsigned char>(tiles_per_strip * max_tile_bytes)),
        v_tiles_(scratch.take<unsigned char>(tiles_per_strip * max_tile_bytes)),
        columns_(scratch.take<float>(max_dim * tile_tokens)),
        k_floats_(floats_of(kv.k, scratch)),
        v_floats_(latent_ ? nullptr : floats_of(kv.v, scratch)) {}

  const DtypeOps& k() const { return k_; }
  const DtypeOps& v() const { return v_; }
  bool latent() const { return latent_; }
  // The functions for plain rows; NULL if K or V is read in tiles.
  const DtypeOps* plain_k() const { return plain_k_.ops; }
  const DtypeOps* plain_v() const { return plain_v_.ops; }

  // Makes the tile at `position` tile number i of the strip. Only tokens of `present` can be read.
  void put(uint32_t i, uint64_t position, TokenMask present) {
    present_[i] = present;
    if (kv_.layout == PKV_LAYOUT_PACKED) {
      places_[i] = row_of(kv_, position);
      return;
    }
    if (position != next_position_[i] || present != present_[tiles_per_strip + i])
      return find_rows(i, position, present);
    __builtin_memcpy(k_rows_[i], k_rows_[tiles_per_strip + i], sizeof *k_rows_);
    __builtin_memcpy(v_rows_[i], v_rows_[tiles_per_strip + i], sizeof *v_rows_);
  }

  // Sets the tile that becomes number i in the next strip. Until then it is number
  // tiles_per_strip + i, and only its addresses can be used.
  void put_next(uint32_t i, uint64_t position, TokenMask present) {
    if (kv_.layout == PKV_LAYOUT_PACKED)
      places_[tiles_per_strip + i] = row_of(kv_, position);
    else
      find_rows(tiles_per_strip + i, position, present);
    next_position_[i] = position;
    present_[tiles_per_strip + i] = present;
  }

  const unsigned char* keys(uint32_t i, uint32_t head) {
    return tile(i, kv_.k, head, k_.stored->pack_k, k_tiles_);
  }
  const unsigned char* values(uint32_t i, uint32_t head) {
    return tile(i, kv_.v, head, v_.stored->pack_v, v_tiles_);
  }

  // Returns K or V of a tile of plain rows, where they are, or converted. The rows of tokens that
  // are not present are those of others. If V is a part of K, ask for K first.
  PlainTile plain_keys(uint32_t i, uint32_t head) {
    if (!plain_k_.converted) return keys_in_memory(i, head);
    convert(i, kv_.k, head, k_converted_[i]);
    return {k_converted_[i], 0, 0};
  }
  PlainTile plain_values(uint32_t i, uint32_t head) {
    if (!plain_v_.converted) return values_in_memory(i, head);
    if (latent_) return {k_converted_[i], 0, 0};
    convert(i, kv_.v, head, v_converted_[i]);
    return {v_converted_[i], 0, 0};
  }

  // Returns the rows as they are in memory. If they are converted, they can only be prefetched.
  PlainTile keys_in_memory(uint32_t i, uint32_t head) const {
    return {k_rows_[i], head * kv_.k.head_stride, elements_bytes(kv_.k.dtype, kv_.k.dim)};
  }
  PlainTile values_in_memory(uint32_t i, uint32_t head) const {
    if (latent_) return keys_in_memory(i, head);
    return {v_rows_[i], head * kv_.v.head_stride, elements_bytes(kv_.v.dtype, kv_.v.dim)};
  }

  // Returns addresses to prefetch. For plain rows there is nothing to prefetch, so they are
  // arbitrary.
  const unsigned char* address_of_keys(uint32_t i, uint32_t head) const {
    return address(i, kv_.k, head, k_tiles_);
  }
  const unsigned char* address_of_values(uint32_t i, uint32_t head) const {
    return address(i, kv_.v, head, v_tiles_);
  }

  // Unpacks V of a tile to fp32, like ValueTile::unpack. Slots of tokens that are not present may
  // then have any value.
  void unpack_values(uint32_t i, uint32_t head, float* to, size_t token_stride,
                     size_t panel_stride) {
    if (!latent_ && plain_v_.ops != nullptr) {
      const PlainTile tile = plain_values(i, head);
      plain_v_.ops->stored->unpack_v(reinterpret_cast<const unsigned char*>(&tile), kv_.v.dim, to,
                                     token_stride, panel_stride);
      return;
    }
    if (!latent_) {
      v_.stored->unpack_v(values(i, head), kv_.v.dim, to, token_stride, panel_stride);
      return;
    }
    k_.stored->unpack_k(keys(i, head), kv_.k.dim, columns_);
    for (uint32_t d = 0; d < kv_.v.dim; d += tile_tokens, to += panel_stride)
      transpose_floats(columns_ + d * tile_tokens, to, token_stride);
  }

 private:
  static constexpr size_t max_tile_bytes = max_dim * tile_tokens * 4;
  using RowAddresses = const unsigned char* [tile_tokens];

  static float* floats_of(const SideView& side, Scratch& scratch) {
    return is_converted(side) ? scratch.take<float>(tiles_per_strip * tile_tokens * side.dim)
                              : nullptr;
  }

  // Finds the rows of the tokens of `present` for KV head 0.
  void find_rows(uint32_t i, uint64_t position, TokenMask present) {
    if (present == all_tokens && kv_.blocks != nullptr && kv_.block_size == 1) {
      const uint32_t* const ids = kv_.blocks + position;
      for (uint32_t t = 0; t < tile_tokens; t++)
        k_rows_[i][t] = kv_.k.data + int64_t{ids[t]} * kv_.k.block_stride;
      for (uint32_t t = 0; t < tile_tokens && !latent_; t++)
        v_rows_[i][t] = kv_.v.data + int64_t{ids[t]} * kv_.v.block_stride;
      return;
    }
    const uint64_t size = kv_.blocks != nullptr ? kv_.block_size : UINT64_MAX;
    uint64_t entry = position / size, offset = position % size;
    const uint32_t first = static_cast<uint32_t>(__builtin_ctz(present));
    for (uint32_t t = 0; t < tile_tokens; t++) {
      if ((present >> t & 1) != 0) {
        const Slot row{kv_.blocks != nullptr ? kv_.blocks[entry] : 0, static_cast<int64_t>(offset)};
        k_rows_[i][t] = row_address(kv_.k, row, 0);
        v_rows_[i][t] = latent_ ? nullptr : row_address(kv_.v, row, 0);
      }
      if (++offset == size) offset = 0, entry++;
    }
    for (uint32_t t = 0; t < tile_tokens; t++)
      if ((present >> t & 1) == 0)
        k_rows_[i][t] = k_rows_[i][first], v_rows_[i][t] = v_rows_[i][first];
  }

  const unsigned char* tile(uint32_t i, const SideView& side, uint32_t head,
                            void (*pack)(const unsigned char* const*, TokenRange, uint32_t,
                                         unsigned char*),
                            unsigned char* packed) {
    if (kv_.layout == PKV_LAYOUT_PACKED) return row_address(side, places_[i], head);
    unsigned char* const to = packed + i * max_tile_bytes;
    RowAddresses rows;
    if (is_converted(side))
      convert(i, side, head, rows);
    else
      for (uint32_t t = 0; t < tile_tokens; t++) rows[t] = row_in_memory(i, side, head, t);
    for (uint32_t t = 0; t < tile_tokens;) {  // by runs of tokens that are present
      if ((present_[i] >> t & 1) == 0) {
        t++;
        continue;
      }
      uint32_t end = t;
      while (end < tile_tokens && (present_[i] >> end & 1) != 0) end++;
      pack(rows, {t, end}, side.dim, to);
      t = end;
    }
    return to;
  }

  const unsigned char* row_in_memory(uint32_t i, const SideView& side, uint32_t head,
                                     uint32_t t) const {
    return (&side == &kv_.k ? k_rows_ : v_rows_)[i][t] + head * side.head_stride;
  }

  // Converts the rows of the tokens that are present.
  void convert(uint32_t i, const SideView& side, uint32_t head, RowAddresses& rows) {
    const size_t first = size_t{i} * tile_tokens * side.dim;
    float* const to = (&side == &kv_.k ? k_floats_ : v_floats_) + first;
    const auto any = static_cast<uint32_t>(__builtin_ctz(present_[i]));
    for (uint32_t t = 0; t < tile_tokens; t++) {
      const bool present = (present_[i] >> t & 1) != 0;
      float* const row = to + size_t{present ? t : any} * side.dim;
      if (present) read_row<Isa>(side.in_memory, row_in_memory(i, side, head, t), row);
      rows[t] = reinterpret_cast<const unsigned char*>(row);
    }
  }

  const unsigned char* address(uint32_t i, const SideView& side, uint32_t head,
                               const unsigned char* otherwise) const {
    return kv_.layout == PKV_LAYOUT_PACKED ? row_address(side, places_[i], head) : otherwise;
  }

  // Transposes 16 dims of 16 tokens, [dim][token], to [token][dim].
  static void transpose_floats(const float* from, float* to, size_t token_stride) {
    for (uint32_t t = 0; t < tile_tokens; t++)
      for (uint32_t d = 0; d < tile_tokens; d++)
        to[t * token_stride + d] = from[d * tile_tokens + t];
  }

  const KvView& kv_;
  const DtypeOps& k_;
  const DtypeOps& v_;
  const bool latent_;
  const PlainOps plain_k_, plain_v_;
  unsigned char* const k_tiles_;  // tiles that were packed from plain rows
  unsigned char* const v_tiles_;
  float* const columns_;   // K of a tile in fp32, where V is a part of it
  float* const k_floats_;  // converted rows, or NULL
  float* const v_floats_;
  RowAddresses k_converted_[tiles_per_strip], v_converted_[tiles_per_strip];
  TokenMask present_[2 * tiles_per_strip] = {};
  uint64_t next_position_[tiles_per_strip] = {};
  Slot places_[2 * tiles_per_strip] = {};
  // The rows of plain tiles, for KV head 0.
  RowAddresses k_rows_[2 * tiles_per_strip], v_rows_[2 * tiles_per_strip];
};

}  // namespace pkv::kernels
