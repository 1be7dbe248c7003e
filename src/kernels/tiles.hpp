// The tiles of a sequence, whatever its layout: packed ones where they lie; of plain rows a tile is packed into working memory, and
// then takes the same way, so that both layouts give the same bits.
#pragma once

#include "kernels/format.hpp"
#include "kernels/tokens.h"
#include "kernels/work.h"

namespace pkv {

template <class Isa>
class Tiles {
 public:
  Tiles(const KvView& kv, Work& work)
      : kv_(kv), k_(format_of<Isa>(kv.k.dtype)), v_(format_of<Isa>(kv.v.dtype)), latent_(kv.v.data == nullptr),
        k_tile_(work.take<unsigned char>(max_dim * tile_tokens * 4)), v_tile_(work.take<unsigned char>(max_dim * tile_tokens * 4)),
        columns_(work.take<float>(max_dim * tile_tokens)) {}

  const Format<Isa>& k() const { return k_; }
  const Format<Isa>& v() const { return v_; }
  bool latent() const { return latent_; }

  // Goes to the tile that begins at a position. Only the tokens of `present` are there to be read; none of the tile after it is, unless
  // `more`.
  void move_to(uint64_t position, TokenMask present, bool more) {
    present_ = present;
    if (kv_.layout == PKV_LAYOUT_PACKED) {
      now_ = find(position);
      next_ = more ? find(position + tile_tokens) : now_;
      return;
    }
    for (uint32_t t = 0; t < tile_tokens; t++)
      if ((present >> t & 1) != 0) rows_[t] = slot_of(kv_, position + t);
  }

  const unsigned char* keys(uint32_t head) { return tile(kv_.k, head, k_.pack_k, k_tile_); }
  const unsigned char* values(uint32_t head) { return tile(kv_.v, head, v_.pack_v, v_tile_); }

  // The same of a head of the next tile: only to be prefetched.
  const unsigned char* next_keys(uint32_t head, bool same_tile) const { return ahead(kv_.k, head, same_tile, k_tile_); }
  const unsigned char* next_values(uint32_t head, bool same_tile) const { return ahead(kv_.v, head, same_tile, v_tile_); }

  // V of the tile in fp32, as ValueTile::unpack has it. Slots of tokens that are not present hold anything.
  void unpack_values(uint32_t head, float* to, size_t token_stride, size_t panel_stride) {
    if (!latent_) {
      v_.unpack_v(values(head), kv_.v.dim, to, token_stride, panel_stride);
      return;
    }
    k_.unpack_k(keys(head), kv_.k.dim, columns_);
    for (uint32_t d = 0; d < kv_.v.dim; d += tile_tokens, to += panel_stride) transpose_floats(columns_ + d * tile_tokens, to, token_stride);
  }

 private:
  Slot find(uint64_t position) const {
    const Slot slot = slot_of(kv_, position);
    return {slot.block, slot.offset / tile_tokens};
  }

  const unsigned char* tile(const SideView& side, uint32_t head,
                            void (*pack)(const unsigned char* const*, TokenRange, uint32_t, unsigned char*), unsigned char* to) {
    if (kv_.layout == PKV_LAYOUT_PACKED) return place(side, now_.block, now_.offset, head);
    const unsigned char* rows[tile_tokens];
    for (uint32_t t = 0; t < tile_tokens; t++)
      if ((present_ >> t & 1) != 0) rows[t] = place(side, rows_[t].block, rows_[t].offset, head);
    for (uint32_t t = 0; t < tile_tokens;) {  // runs of tokens that are there
      if ((present_ >> t & 1) == 0) {
        t++;
        continue;
      }
      uint32_t end = t;
      while (end < tile_tokens && (present_ >> end & 1) != 0) end++;
      pack(rows, {t, end}, side.dim, to);
      t = end;
    }
    return to;
  }

  const unsigned char* ahead(const SideView& side, uint32_t head, bool same_tile, const unsigned char* otherwise) const {
    if (kv_.layout != PKV_LAYOUT_PACKED) return otherwise;
    const Slot at = same_tile ? now_ : next_;
    return place(side, at.block, at.offset, head);
  }

  // 16 dims of 16 tokens, [dim][token], to [token][dim].
  static void transpose_floats(const float* from, float* to, size_t token_stride) {
    for (uint32_t t = 0; t < tile_tokens; t++)
      for (uint32_t d = 0; d < tile_tokens; d++) to[t * token_stride + d] = from[d * tile_tokens + t];
  }

  const KvView& kv_;
  const Format<Isa>& k_;
  const Format<Isa>& v_;
  const bool latent_;
  unsigned char* const k_tile_;
  unsigned char* const v_tile_;
  float* const columns_;
  TokenMask present_ = 0;
  Slot now_{}, next_{};
  Slot rows_[tile_tokens];
};

}  // namespace pkv
