// Partial attention of some rows over some positions, as a walk over tiles: tiles outside, KV heads inside, the query rows
// of a KV head innermost. Memory is read in the order in which it lies, and K and V are loaded once for a register tile of rows.
// What a row gets does not depend on the rows beside it.
#pragma once

#include "kernels/packed.hpp"
#include "kernels/plain.hpp"

namespace pkv {

// One register tile of rows against one tile of tokens, all of which see the same part of it.
template <class Isa, class Tiles, unsigned rows>
void attend_rows(typename Keys<Isa, Tiles::key_format>::Row q, uint32_t key_dim, const unsigned char* keys,
                 const unsigned char* next_keys, const typename Tiles::Values& values, TokenRange seen, RowState first,
                 uint32_t value_dim) {
  alignas(64) float tile[rows][tile_tokens];
  Keys<Isa, Tiles::key_format>::template scores<rows>(q, key_dim, keys, next_keys, tile);
  absorb<Isa, rows>(seen, tile, first, value_dim);
  accumulate<Isa, rows>(values, seen, tile, first.out, value_dim);
}

template <class Isa, pkv_dtype dtype, class Tiles>
class Walk {
  using TileKeys = Keys<Isa, Tiles::key_format>;

 public:
  Walk(const AttendTask& task, const Chunk& chunk)
      : task_(task), chunk_(chunk), queries_(task, chunk), tiles_(task.kv, chunk.head_begin, chunk.head_end) {}

  void run() {
    for_each_row([&](uint64_t, RowState row) {
      for (uint32_t d = 0; d < task_.kv.value_dim; d++) row.out[d] = 0;
      *row.max = -__builtin_inff();
      *row.sum = 0;
    });
    // The bounds of what a query sees rise with the query.
    const Range seen = {seen_by(task_, chunk_.row_begin / task_.group).begin,
                        seen_by(task_, (chunk_.row_end - 1) / task_.group).end};
    if (seen.begin < seen.end) walk(seen);
    for_each_row([&](uint64_t query, RowState row) {
      const Range own = seen_by(task_, query);
      close_row(own.begin < own.end, row.max, row.sum);
    });
  }

 private:
  static TokenRange in_tile(Range seen, uint64_t tile) {
    const uint64_t begin = seen.begin > tile ? seen.begin - tile : 0, end = seen.end > tile ? seen.end - tile : 0;
    return {static_cast<uint32_t>(begin < tile_tokens ? begin : tile_tokens),
            static_cast<uint32_t>(end < tile_tokens ? end : tile_tokens)};
  }

  TokenRange row_sees(uint64_t row, uint64_t tile) const { return in_tile(seen_by(task_, row / task_.group), tile); }

  RowState state(uint32_t head, uint64_t row) const {
    const uint64_t index = head * uint64_t{task_.queries} * task_.group + row;
    return {task_.out + index * task_.kv.value_dim, task_.max + index, task_.sum + index};
  }

  template <class Visit>
  void for_each_row(Visit visit) const {
    for (uint32_t head = chunk_.head_begin; head < chunk_.head_end; head++)
      for (uint64_t row = chunk_.row_begin; row < chunk_.row_end; row++) visit(row / task_.group, state(head, row));
  }

  void walk(Range seen) {
    for (uint64_t tile = seen.begin / tile_tokens * tile_tokens; tile < seen.end; tile += tile_tokens) {
      tiles_.move_to(tile, in_tile(seen, tile), seen.end - tile > tile_tokens);
      for (uint32_t head = chunk_.head_begin; head < chunk_.head_end; head++) attend_head(tile, head);
    }
  }

  void attend_head(uint64_t tile, uint32_t head) {
    const unsigned char* keys = tiles_.keys(head);
    const typename Tiles::Values values = tiles_.values(head);
    uint64_t row = chunk_.row_begin;
    while (row < chunk_.row_end) row += register_tile<Isa::row_tile>(tile, head, row, keys, values);
  }

  // Takes as many rows from `row` on, at most `rows`, as see the same tokens; returns how many.
  template <unsigned rows>
  uint64_t register_tile(uint64_t tile, uint32_t head, uint64_t row, const unsigned char* keys,
                         const typename Tiles::Values& values) {
    const TokenRange seen = row_sees(row, tile);
    if constexpr (rows > 1) {
      const uint64_t last = row + rows - 1;
      const bool alike = last < chunk_.row_end && same(seen, row_sees(last, tile));
      if (!alike) return register_tile<rows / 2>(tile, head, row, keys, values);
    }
    if (seen.begin < seen.end)
      attend_rows<Isa, Tiles, rows>(queries_.row(head, row), task_.kv.key_dim, keys, tiles_.next_keys(head), values, seen,
                                    state(head, row), task_.kv.value_dim);
    return rows;
  }

  static bool same(TokenRange a, TokenRange b) { return a.begin == b.begin && a.end == b.end; }

  const AttendTask& task_;
  const Chunk chunk_;
  typename TileKeys::Queries queries_;
  Tiles tiles_;
};

// All heads and rows at once where their queries fit into the cache (decode), else as many heads, else as many rows as do.
template <class Isa, pkv_dtype dtype, class Tiles>
void attend(const AttendTask& task) {
  const uint64_t rows = uint64_t{task.queries} * task.group;
  const uint64_t fitting_rows = Keys<Isa, Tiles::key_format>::capacity / task.kv.key_dim;
  const uint64_t heads_per_walk = rows < fitting_rows ? fitting_rows / rows : 1;
  const uint64_t rows_per_walk = rows < fitting_rows ? rows : fitting_rows / Isa::row_tile * Isa::row_tile;

  for (uint64_t head = 0; head < task.kv.kv_heads; head += heads_per_walk) {
    const uint64_t heads = task.kv.kv_heads - head < heads_per_walk ? task.kv.kv_heads - head : heads_per_walk;
    for (uint64_t row = 0; row < rows; row += rows_per_walk) {
      const uint64_t row_end = rows - row < rows_per_walk ? rows : row + rows_per_walk;
      Walk<Isa, dtype, Tiles>(task, {static_cast<uint32_t>(head), static_cast<uint32_t>(head + heads), row, row_end}).run();
    }
  }
}

}  // namespace pkv
