// Tiles of a packed sequence, read where they lie: a tile of one head is one run of bytes, and the heads of a tile follow one
// another, so the walk over blocks and heads is a sequential read.
#pragma once

#include "kernels/keys.hpp"
#include "kernels/values.hpp"

namespace pkv {

// V of a packed tile.
template <class Isa, pkv_dtype dtype>
struct PackedValues {
  const unsigned char* tile;
  const unsigned char* next;  // the tile that is wanted after this one
  uint32_t value_dim;

  static constexpr unsigned bytes = Elements<Isa, dtype>::bytes;

  // Dims [d, d + 16) of all tokens.
  void prefetch(uint32_t d) const {
    constexpr unsigned run = tile_tokens * tile_tokens * bytes;
    for (unsigned line = 0; line < run; line += 64) __builtin_prefetch(next + d / tile_tokens * run + line);
  }

  ValueVectors<Isa> one(uint32_t token, uint32_t d) const {
    ValueVectors<Isa> v;
    const unsigned char* from = tile + (size_t{token} * value_dim + d) * bytes;
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

template <class Isa>
struct PackedValues<Isa, PKV_BF16> {
  const unsigned char* tile;
  const unsigned char* next;
  uint32_t value_dim;

  void prefetch(uint32_t d) const {
    constexpr unsigned run = tile_tokens * tile_tokens * 2;
    for (unsigned line = 0; line < run; line += 64) __builtin_prefetch(next + d / tile_tokens * run + line);
  }

  void pair(uint32_t token, uint32_t d, ValueVectors<Isa>* first, ValueVectors<Isa>* second) const {
    const unsigned char* from = tile + (size_t{token} / 2 * value_dim + d) * 4;
#pragma GCC unroll 16
    for (unsigned n = 0; n < vectors_per_tile<Isa>; n++) {
      const Words<Isa> words = load_words<Isa>(from + n * Floats<Isa>::size * 4);
      first->vector[n] = lower_bf16<Isa>(words);
      second->vector[n] = upper_bf16<Isa>(words);
    }
  }

  ValueVectors<Isa> one(uint32_t token, uint32_t d) const {
    ValueVectors<Isa> halves[2];
    pair(token / 2 * 2, d, &halves[0], &halves[1]);
    return halves[token % 2];
  }
};

template <class Isa, pkv_dtype dtype>
class PackedTiles {
 public:
  static constexpr pkv_dtype key_format = dtype;
  using Values = PackedValues<Isa, dtype>;

  PackedTiles(const KvView& kv, uint32_t head_begin, uint32_t head_end) : kv_(kv), head_begin_(head_begin), head_end_(head_end) {}

  // Goes to the tile that begins at a position; `more` tells that the walk goes on to the next one.
  void move_to(uint64_t position, TokenRange, bool more) {
    now_ = find(position);
    next_ = more ? find(position + tile_tokens) : now_;
  }

  const unsigned char* keys(uint32_t head) { return k(now_, head); }
  const unsigned char* next_keys(uint32_t head) const { return head + 1 < head_end_ ? k(now_, head + 1) : k(next_, head_begin_); }

  Values values(uint32_t head) const {
    return {v(now_, head), head + 1 < head_end_ ? v(now_, head + 1) : v(next_, head_begin_), kv_.value_dim};
  }

 private:
  Slot find(uint64_t position) const {
    const Slot slot = slot_of(kv_, position);
    return {slot.block, slot.offset / tile_tokens};
  }
  const unsigned char* k(Slot tile, uint32_t head) const { return kv_.k + k_offset(kv_, tile.block, tile.offset, head); }
  const unsigned char* v(Slot tile, uint32_t head) const { return kv_.v + v_offset(kv_, tile.block, tile.offset, head); }

  const KvView& kv_;
  const uint32_t head_begin_, head_end_;
  Slot now_{}, next_{};
};

}  // namespace pkv
