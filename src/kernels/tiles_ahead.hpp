// Prefetches the tiles of the next strip into the L2 cache, a few lines between any two products,
// so that memory is read while the CPU multiplies. Only packed tiles are prefetched.
#pragma once

#include "kernels/keys.hpp"
#include "kernels/tokens.h"

namespace pkv::kernels {

// The tiles of one KV head. It is a template so that each instruction set has its own copy.
template <class Isa>
class TilesAhead {
 public:
  explicit TilesAhead(const KvView& kv)
      : kv_(kv),
        key_bytes_(tile_bytes(kv.k.dtype, kv.k.dim)),
        value_bytes_(kv.v.data != nullptr ? tile_bytes(kv.v.dtype, kv.v.dim) : 0) {}

  // Begins with the tiles of positions [begin, end); prefetch() will be called `calls` times.
  void begin(uint32_t head, uint64_t begin, uint64_t end, uint32_t calls) {
    if (kv_.layout != PKV_LAYOUT_PACKED || end < begin) end = begin;
    head_ = head, next_ = begin, end_ = end, side_ = &kv_.v;
    line_ = lines_end_ = nullptr;
    const uint64_t tiles = (end - begin + tile_tokens - 1) / tile_tokens;
    lines_per_call_ =
        static_cast<uint32_t>(tiles * (key_bytes_ + value_bytes_) / line_bytes / calls) + 1;
  }

  void prefetch() {
    for (uint32_t i = 0; i < lines_per_call_; i++, line_ += line_bytes) {
      if (line_ == lines_end_ && !find_lines()) return;
      __builtin_prefetch(line_, 0, 2);
    }
  }

 private:
  static constexpr uint32_t line_bytes = 64;

  // Goes on from K of a tile to its V, and from V to K of the next tile. Returns false at the end.
  bool find_lines() {
    if (side_ == &kv_.k && value_bytes_ != 0) {
      side_ = &kv_.v;
    } else {
      while (next_ < end_ && in_hole(kv_, next_)) next_ += tile_tokens;
      if (next_ >= end_) return false;
      side_ = &kv_.k, place_ = row_of(kv_, next_);
      next_ += tile_tokens;
    }
    line_ = row_address(*side_, place_, head_);
    lines_end_ = line_ + (side_ == &kv_.k ? key_bytes_ : value_bytes_);
    return true;
  }

  const KvView& kv_;
  const uint32_t key_bytes_, value_bytes_;  // of a tile
  uint32_t head_ = 0, lines_per_call_ = 0;
  uint64_t next_ = 0, end_ = 0;     // positions
  const SideView* side_ = nullptr;  // of the tile at place_, in which the lines are
  Slot place_ = {};
  const unsigned char *line_ = nullptr, *lines_end_ = nullptr;
};

}  // namespace pkv::kernels
