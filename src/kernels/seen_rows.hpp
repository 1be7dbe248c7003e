// Records the tokens of a strip that each row of a task sees. A strip is a few tiles of a sequence
// that are unpacked together and multiplied with all rows.
#pragma once

#include "kernels/scratch.h"
#include "kernels/tokens.h"

namespace pkv::kernels {

// It is a template so that each instruction set has its own copy.
template <class Isa>
class SeenRows {
 public:
  SeenRows(const AttendTask& task, Scratch& scratch)
      : task_(task),
        rows_(task.queries * task.heads_per_kv_head),
        ends_(scratch.take<uint32_t>(rows_)),
        saw_(scratch.take<bool>(rows_)),
        whole_ends_(scratch.take<uint32_t>(task.queries)) {}

  void begin_head() {
    all_saw_ = false;
    all_begin_ = task_.begin, all_end_ = task_.end;
    for (uint32_t i = 0; i < task_.queries; i++) {
      const uint64_t begin = task_.query[i].begin, end = whole_end(task_.query[i]);
      all_begin_ = all_begin_ > begin ? all_begin_ : begin;
      all_end_ = all_end_ < end ? all_end_ : end;
    }
    for (uint32_t row = 0; row < rows_; row++) saw_[row] = false;
  }

  // Begins the strip whose first position is `base`. The task reads positions [from, to) of it.
  void begin_strip(uint64_t base, uint64_t from, uint64_t to) {
    base_ = base, from_ = from, to_ = to;
    first_tile_ = static_cast<uint32_t>((from - base) / tile_tokens);
    tiles_end_ = static_cast<uint32_t>((to - base + tile_tokens - 1) / tile_tokens);
    has_hole_ = false;
    for (uint32_t tile = first_tile_; tile < tiles_end_ && task_.kv.has_holes; tile++)
      has_hole_ |= in_hole(task_.kv, position_of(tile));
    const uint64_t base_end = position_of(tiles_end_);
    all_whole_ = !has_hole_ && position_of(first_tile_) >= all_begin_ && base_end <= all_end_;
    all_saw_ |= all_whole_;
    if (!all_whole_) find_ends();
  }

  // The tiles of the strip that are read.
  uint32_t first_tile() const { return first_tile_; }
  uint32_t tiles_end() const { return tiles_end_; }
  uint64_t position_of(uint32_t tile) const { return base_ + tile * tile_tokens; }

  // Returns the tokens of a tile that can be read. Between the sinks and the windows there may be
  // no memory.
  TokenMask present(uint32_t tile) const {
    const bool read = task_.sinks == 0 || seen_by_any(tile);
    return read && !in_hole(task_.kv, position_of(tile)) ? range_mask(position_of(tile), from_, to_)
                                                         : 0;
  }

  // Returns the end of the tokens that a row has to process, counted from the first token of the
  // strip: 0, or the end of the last tile in which it sees a token.
  uint32_t end_of(uint32_t row) const { return all_whole_ ? end_of_strip() : ends_[row]; }
  uint32_t end_of_rows(uint32_t row, uint32_t n) const {
    if (all_whole_) return end_of_strip();
    uint32_t end = 0;
    for (uint32_t r = row; r < row + n; r++) end = ends_[r] > end ? ends_[r] : end;
    return end;
  }

  // Returns whether the row saw a token in any strip of the head.
  bool saw(uint32_t row) const { return all_saw_ || saw_[row]; }
  // Returns whether the row sees all tokens of the strip.
  bool row_sees_all(uint32_t row) const { return sees_up_to(row) == end_of_strip(); }
  // Returns the end of the first tiles of the strip of which the row sees all tokens, counted from
  // the first token of the strip.
  uint32_t sees_up_to(uint32_t row) const {
    return all_whole_ ? end_of_strip() : whole_ends_[query_of(row)];
  }
  TokenMask seen_by_row(uint32_t row, uint32_t tile) const { return seen(query_of(row), tile); }

  uint32_t query_of(uint32_t row) const { return row / task_.heads_per_kv_head; }

 private:
  [[gnu::noinline]] void find_ends() {
    for (uint32_t i = 0; i < task_.queries; i++) {
      whole_ends_[i] = whole_end_in_strip(task_.query[i]);
      uint32_t end = whole_ends_[i] == end_of_strip() ? whole_ends_[i] : 0;
      for (uint32_t tile = tiles_end_; tile > first_tile_ && end == 0; tile--)
        if (seen(i, tile - 1) != 0) end = tile * tile_tokens;
      for (uint32_t g = 0; g < task_.heads_per_kv_head; g++) {
        ends_[i * task_.heads_per_kv_head + g] = end;
        saw_[i * task_.heads_per_kv_head + g] |= end != 0;
      }
    }
  }

  uint32_t end_of_strip() const { return tiles_end_ * tile_tokens; }

  // Returns the position up to which a query sees all from its begin on.
  uint64_t whole_end(const QueryView& query) const {
    const uint64_t end = query.end < task_.end ? query.end : task_.end;
    return query.mask != nullptr && query.mask_begin < end ? query.mask_begin : end;
  }

  uint32_t whole_end_in_strip(const QueryView& query) const {
    const uint64_t from = position_of(first_tile_);
    if (has_hole_ || from < query.begin || from < task_.begin) return 0;
    uint64_t end = whole_end(query);
    if (end > position_of(tiles_end_)) end = position_of(tiles_end_);
    return end <= from ? 0 : static_cast<uint32_t>((end - base_) / tile_tokens * tile_tokens);
  }

  TokenMask seen(uint32_t query, uint32_t tile) const {
    return seen_in_tile(task_, task_.query[query], position_of(tile));
  }

  bool seen_by_any(uint32_t tile) const {
    for (uint32_t i = 0; i < task_.queries; i++)
      if (seen(i, tile) != 0) return true;
    return false;
  }

  const AttendTask& task_;
  const uint32_t rows_;
  uint32_t* const ends_;                  // by row
  bool* const saw_;                       // by row
  uint32_t* const whole_ends_;            // by query
  uint64_t all_begin_ = 0, all_end_ = 0;  // what all queries see
  uint64_t base_ = 0, from_ = 0, to_ = 0;
  uint32_t first_tile_ = 0, tiles_end_ = 0;
  bool has_hole_ = false;   // in the strip
  bool all_whole_ = false;  // all rows see all tokens of the strip
  bool all_saw_ = false;    // and of some strip of the head
};

}  // namespace pkv::kernels
