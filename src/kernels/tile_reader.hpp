// Reads the tiles of a sequence in either layout. Packed tiles are read in place. Plain rows are
// packed into a tile in working memory first, or multiplied where they are (plain_tiles.hpp).
#pragma once

#include "kernels/dtype_ops.hpp"
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
        k_tiles_(scratch.take<unsigned char>(tiles_per_step * max_tile_bytes)),
        v_tiles_(scratch.take<unsigned char>(tiles_per_step * max_tile_bytes)),
        columns_(scratch.take<float>(max_dim * tile_tokens)) {}

  const DtypeOps& k() const { return k_; }
  const DtypeOps& v() const { return v_; }
  bool latent() const { return latent_; }

  // Makes the tile at `position` tile number i of the step. Only tokens of `present` can be read.
  void put(uint32_t i, uint64_t position, TokenMask present) {
    present_[i] = present;
    if (kv_.layout == PKV_LAYOUT_PACKED) {
      places_[i] = row_of(kv_, position);
      return;
    }
    find_rows(i, position, present);
  }

  // Sets the tile that becomes number i in the next step. Until then it is number tiles_per_step +
  // i, and only its addresses can be used.
  void put_next(uint32_t i, uint64_t position, TokenMask present) {
    if (kv_.layout == PKV_LAYOUT_PACKED)
      places_[tiles_per_step + i] = row_of(kv_, position);
    else
      find_rows(tiles_per_step + i, position, present);
  }

  const unsigned char* keys(uint32_t i, uint32_t head) {
    return tile(i, kv_.k, head, k_.stored->pack_k, k_tiles_);
  }
  const unsigned char* values(uint32_t i, uint32_t head) {
    return tile(i, kv_.v, head, v_.stored->pack_v, v_tiles_);
  }

  // Returns K or V of a tile of plain rows, where they are. The rows of tokens that are not present
  // are those of others.
  PlainTile plain_keys(uint32_t i, uint32_t head) const {
    return {k_rows_[i], head * kv_.k.head_stride, elements_bytes(kv_.k.dtype, kv_.k.dim)};
  }
  PlainTile plain_values(uint32_t i, uint32_t head) const {
    if (latent_) return plain_keys(i, head);
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

  // Finds the rows of the tokens of `present` for KV head 0.
  void find_rows(uint32_t i, uint64_t position, TokenMask present) {
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
    const auto& of_head_0 = &side == &kv_.k ? k_rows_[i] : v_rows_[i];
    const unsigned char* rows[tile_tokens];
    for (uint32_t t = 0; t < tile_tokens; t++) rows[t] = of_head_0[t] + head * side.head_stride;
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
  unsigned char* const k_tiles_;  // tiles that were packed from plain rows
  unsigned char* const v_tiles_;
  float* const columns_;  // K of a tile in fp32, where V is a part of it
  TokenMask present_[tiles_per_step] = {};
  Slot places_[2 * tiles_per_step] = {};
  // The rows of plain tiles, for KV head 0.
  const unsigned char *k_rows_[2 * tiles_per_step][tile_tokens],
      *v_rows_[2 * tiles_per_step][tile_tokens];
};

}  // namespace pkv::kernels
