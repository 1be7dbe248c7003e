// Prefetches the tiles or plain rows of the next strip into the L2 cache, a few lines between any
// two products, so that memory is read while the CPU multiplies.
#pragma once

#include "kernels/keys.hpp"
#include "kernels/tokens.h"

namespace pkv::kernels {

// A piece is a tile, or in the plain layout a row. It is a template so that each instruction set
// has its own copy.
template <class Isa>
class TilesAhead {
 public:
  explicit TilesAhead(const KvView& kv)
      : kv_(kv),
        piece_tokens_(kv.layout == PKV_LAYOUT_PACKED ? tile_tokens : 1),
        key_bytes_(piece_bytes(kv.k)),
        value_bytes_(kv.v.data != nullptr ? piece_bytes(kv.v) : 0) {}

  // Positions [begin, end) of some KV heads are read strip by strip, head by head. Begins with the
  // strip after the one at `at` of a head; prefetch() will be called `calls` times.
  void begin_after(uint64_t at, uint32_t strip_tokens, uint64_t begin, uint64_t end, uint32_t head,
                   uint32_t head_end, uint32_t calls) {
    uint64_t first = at + strip_tokens, last = first + strip_tokens;
    if (first >= end) {
      head++;
      first = head < head_end ? begin : end;
      last = begin / strip_tokens * strip_tokens + strip_tokens;
    }
    begin_strip(head, first, last < end ? last : end, calls);
  }

  void prefetch() {
    for (uint32_t i = 0; i < lines_per_call_; i++, line_ += line_bytes) {
      if (line_ == lines_end_ && !find_lines()) return;
      __builtin_prefetch(line_, 0, 2);
    }
  }

 private:
  static constexpr uint32_t line_bytes = 64;

  uint32_t piece_bytes(const SideView& side) const {
    if (kv_.layout == PKV_LAYOUT_PACKED) return tile_bytes(side.dtype, side.dim);
    const RowFormat row = format_of(side);
    return row_bytes(row.dtype, row.dim);
  }

  void begin_strip(uint32_t head, uint64_t begin, uint64_t end, uint32_t calls) {
    head_ = head, next_ = begin, end_ = end, side_ = &kv_.v;
    line_ = lines_end_ = nullptr;
    const uint64_t pieces = begin < end ? (end - begin + piece_tokens_ - 1) / piece_tokens_ : 0;
    const auto lines = [](uint32_t bytes) { return (bytes + line_bytes - 1) / line_bytes; };
    lines_per_call_ =
        static_cast<uint32_t>(pieces * (lines(key_bytes_) + lines(value_bytes_)) / calls) + 1;
  }

  // Goes on from K of a piece to its V, and from V to K of the next one. Returns false at the end.
  bool find_lines() {
    if (side_ == &kv_.k && value_bytes_ != 0) {
      side_ = &kv_.v;
    } else {
      while (next_ < end_ && in_hole(kv_, next_)) next_ += piece_tokens_;
      if (next_ >= end_) return false;
      side_ = &kv_.k, place_ = row_of(kv_, next_);
      next_ += piece_tokens_;
    }
    const unsigned char* const piece = row_address(*side_, place_, head_);
    const uint32_t bytes = side_ == &kv_.k ? key_bytes_ : value_bytes_,
                   skipped = reinterpret_cast<uintptr_t>(piece) % line_bytes;
    line_ = piece - skipped;
    lines_end_ = line_ + (skipped + bytes + line_bytes - 1) / line_bytes * line_bytes;
    return true;
  }

  const KvView& kv_;
  const uint32_t piece_tokens_;
  const uint32_t key_bytes_, value_bytes_;  // of a piece
  uint32_t head_ = 0, lines_per_call_ = 0;
  uint64_t next_ = 0, end_ = 0;     // positions
  const SideView* side_ = nullptr;  // of the piece at place_, in which the lines are
  Slot place_ = {};
  const unsigned char *line_ = nullptr, *lines_end_ = nullptr;
};

}  // namespace pkv::kernels
