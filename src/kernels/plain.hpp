// Tiles of a plain sequence: K of 16 tokens is packed into scratch and then takes the same way as a packed tile, V is read where
// it lies. Both layouts so give the same bits.
#pragma once

#include "kernels/keys.hpp"
#include "kernels/transpose.hpp"
#include "kernels/values.hpp"

namespace pkv {

// V of 16 tokens that lie anywhere.
template <class Isa, pkv_dtype dtype>
struct PlainValues {
  const unsigned char* const* rows;  // head 0 of each token
  int64_t head_offset;

  void prefetch(uint32_t) const {}  // 16 streams: left to the processor

  ValueVectors<Isa> one(uint32_t token, uint32_t d) const {
    constexpr unsigned bytes = Elements<Isa, dtype>::bytes;
    ValueVectors<Isa> v;
    const unsigned char* from = rows[token] + head_offset + d * bytes;
#pragma GCC unroll 16
    for (unsigned n = 0; n < vectors_per_tile<Isa>; n++)
      v.vector[n] = Elements<Isa, dtype>::load(from + n * Floats<Isa>::size * bytes);
    return v;
  }

  void pair(uint32_t token, uint32_t d, ValueVectors<Isa>* first, ValueVectors<Isa>* second) const {
    *first = one(token, d);
    *second = one(token + 1, d);
  }
};

template <class Isa, pkv_dtype dtype>
class PlainTiles {
 public:
  // A word of a transposed row is one fp32 dim or a pair of bf16 dims; binary16 is widened on the way.
  static constexpr pkv_dtype key_format = dtype == PKV_BF16 ? PKV_BF16 : PKV_F32;
  using Values = PlainValues<Isa, dtype>;

  PlainTiles(const KvView& kv, uint32_t, uint32_t) : kv_(kv) {}

  // Goes to the tile that begins at a position; only the tokens in `seen` are there to be read.
  void move_to(uint64_t position, TokenRange seen, bool) {
    Slot slot = slot_of(kv_, position + seen.begin);
    for (uint32_t t = seen.begin; t < seen.end; t++) {
      if (kv_.blocks != nullptr && slot.offset == kv_.block_size) slot = slot_of(kv_, position + t);
      k_rows_[t] = kv_.k + k_offset(kv_, slot.block, slot.offset, 0);
      v_rows_[t] = kv_.v + v_offset(kv_, slot.block, slot.offset, 0);
      slot.offset++;
    }
    // Lanes of unseen tokens get some token's K: their scores are thrown away.
    for (uint32_t t = 0; t < tile_tokens; t++)
      if (t < seen.begin || t >= seen.end) k_rows_[t] = k_rows_[seen.begin];
  }

  const unsigned char* keys(uint32_t head) {
    const unsigned char* rows[tile_tokens];
    for (uint32_t t = 0; t < tile_tokens; t++) rows[t] = k_rows_[t] + head * kv_.k_head_stride;
    if constexpr (dtype == PKV_F16)
      transpose_widened(rows);
    else
      transpose<Isa>(rows, kv_.key_dim * Elements<Isa, dtype>::bytes / 4, scratch_);
    return scratch_;
  }
  const unsigned char* next_keys(uint32_t) const { return scratch_; }

  Values values(uint32_t head) const { return {v_rows_, head * kv_.v_head_stride}; }

 private:
  void transpose_widened(const unsigned char* const* rows) {
    alignas(64) unsigned char wide[tile_tokens][tile_tokens * 4];
    const unsigned char* wide_rows[tile_tokens];
    for (uint32_t t = 0; t < tile_tokens; t++) wide_rows[t] = wide[t];
    for (uint32_t d = 0; d < kv_.key_dim; d += tile_tokens) {
      for (uint32_t t = 0; t < tile_tokens; t++) convert_elements<Isa, dtype, PKV_F32>(rows[t] + d * 2, wide[t], tile_tokens);
      transpose<Isa>(wide_rows, tile_tokens, scratch_ + d * tile_tokens * 4);
    }
  }

  const KvView& kv_;
  const unsigned char* k_rows_[tile_tokens];
  const unsigned char* v_rows_[tile_tokens];
  alignas(64) unsigned char scratch_[max_dim * tile_tokens * (key_format == PKV_BF16 ? 2 : 4)];
};

}  // namespace pkv
