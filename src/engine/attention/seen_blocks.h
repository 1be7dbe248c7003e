// Finds the blocks of a sequence that its queries see, and the views of queries in a sequence that
// has only some of its blocks.
#pragma once

#include <span>

#include "engine/attention/reading.h"

namespace pkv::attention {

class SeenBlocks {
 public:
  // For queries [first, first + count) of a reading with a block table. The object refers to the
  // reading as long as it lives.
  SeenBlocks(const Reading& reading, uint32_t first, uint32_t count);

  // Returns whether a query sees a token of the block at an entry of the block table.
  bool operator[](uint32_t entry) const {
    const kernels::KvView& kv = reading_.kv;
    if (kv.has_holes && kv.blocks[entry] == PKV_NO_BLOCK_ID) return false;
    const uint64_t begin = uint64_t{entry} * kv.block_size, end = begin + kv.block_size;
    if (begin >= end_ || (end <= begin_ && begin >= reading_.sinks)) return false;
    return !reading_.masked() || end <= reading_.mask_begin() || unmasked(begin, end);
  }

  // Returns the end of the positions that any of the queries sees.
  uint64_t end() const { return end_; }

 private:
  bool unmasked(uint64_t begin, uint64_t end) const;

  const Reading& reading_;
  const std::span<const kernels::QueryView> views_;  // of the queries
  uint64_t begin_, end_;
};

// A sequence that has only some blocks of another one: those at `entries` of its block table, in
// ascending order.
class Excerpt {
 public:
  Excerpt(std::span<const uint32_t> entries, uint32_t block_size)
      : entries_(entries), block_size_(block_size) {}

  // Returns how many positions of the excerpt come before a position of the whole sequence.
  uint64_t position(uint64_t whole) const;
  // Returns the view that a query has of the excerpt, without its mask.
  kernels::QueryView view(const kernels::QueryView& whole) const;
  // mask_words() returns the number of words of the mask of such a view; write_mask() writes them.
  uint64_t mask_words(const kernels::QueryView& whole) const;
  void write_mask(const kernels::QueryView& whole, uint64_t* words) const;

 private:
  const std::span<const uint32_t> entries_;
  const uint64_t block_size_;
};

}  // namespace pkv::attention
