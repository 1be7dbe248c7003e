// Computes the weight of blocks in the attention of some rows whose log-sum-exp is known. It reads
// K once more. A tile is loaded once for a register tile of rows, as in attention of a few rows.
#pragma once

#include "kernels/softmax.hpp"
#include "kernels/tile_reader.hpp"

namespace pkv::kernels {

template <class Isa>
class WeighBlocks {
 public:
  WeighBlocks(const WeighTask& task, const SetOps& ops, Scratch& scratch)
      : task_(task),
        rows_(task.attend.queries * task.attend.heads_per_kv_head),
        tiles_(task.attend.kv, ops, scratch),
        query_bytes_(tiles_.k().query_bytes(task.attend.kv.k.dim)),
        queries_(scratch.take<unsigned char>(query_bytes_ * (rows_ + most_rows))),
        seen_(scratch.take<TokenMask>(task.attend.queries)) {}

  void run() {
    const AttendTask& attend = task_.attend;
    for (uint32_t row = 0; row < rows_ && query_bytes_ != 0; row++)
      tiles_.k().prepare_query(attend.q + size_t{row} * attend.kv.k.dim, attend.kv.k.dim,
                               attend.scale, queries_ + row * query_bytes_);
    for (uint64_t tile = attend.begin; tile < attend.end; tile += tile_tokens)
      if (look(tile)) weigh_tile(tile);
  }

 private:
  static constexpr uint32_t most_rows = 16;  // the most rows of any register tile

  // Records which tokens of a tile each query sees. Returns false if no query sees any of them.
  bool look(uint64_t tile) {
    TokenMask any = 0;
    for (uint32_t i = 0; i < task_.attend.queries; i++)
      any |= seen_[i] = seen_in_tile(task_.attend, task_.attend.query[i], tile);
    // Before a window there may be no memory, even within a tile.
    if (any != 0) tiles_.put(0, tile, any);
    return any != 0;
  }

  void weigh_tile(uint64_t tile) {
    const DtypeOps& k = tiles_.k();
    const unsigned char* const keys = tiles_.keys(0, task_.attend.head_begin);
    const uint32_t dim = task_.attend.kv.k.dim;
    alignas(64) ScoreRow scores[most_rows];
    for (uint32_t row = 0, n; row < rows_; row += n) {
      const uint32_t left = rows_ - row;
      const uint32_t size = left >= k.max_rows ? 3 : left >= 4 ? 2 : left >= 2 ? 1 : 0;
      n = size == 3 ? k.max_rows : 1u << size;
      k.scores[0][size](query(row), dim, &keys, &keys, scores);
      for (uint32_t r = 0; r < n; r++) weigh_row(row + r, tile, scores[r]);
    }
  }

  const void* query(uint32_t row) const {
    if (query_bytes_ != 0) return queries_ + row * query_bytes_;
    return task_.attend.q + size_t{row} * task_.attend.kv.k.dim;
  }

  void weigh_row(uint32_t row, uint64_t tile, float* scores) {
    using F = Floats<Isa>;
    const AttendTask& attend = task_.attend;
    const uint32_t index = row / attend.heads_per_kv_head, head = row % attend.heads_per_kv_head;
    if (seen_[index] == 0) return;
    if (transforms(attend.transform))
      transform_scores<Isa>(attend.transform, attend.head_begin * attend.heads_per_kv_head + head,
                            attend.query[index], tile, scores);
    if (seen_[index] != all_tokens) hide_unseen<Isa>(seen_[index], scores);
    const F lse(task_.lse[index * task_.lse_stride + head]);
    for (uint32_t t = 0; t < tile_tokens; t += F::size)
      exp_of_negative<Isa>(F::load_aligned(scores + t) - lse).store_aligned(scores + t);
    float* const weights = task_.weights + head * task_.weights_stride;
    // Blocks of the plain layout may begin and end inside a tile.
    const uint64_t size = attend.kv.block_size;
    for (TokenMask left = seen_[index]; left != 0;) {
      const uint64_t block = (tile + static_cast<uint32_t>(__builtin_ctz(left))) / size;
      const TokenMask here = left & range_mask(tile, block * size, (block + 1) * size);
      weights[block] += here == seen_[index] ? total_of<Isa>(scores) : sum_of(here, scores);
      left &= ~here;
    }
  }

  static float sum_of(TokenMask tokens, const float* weights) {
    float sum = 0;
    for (; tokens != 0; tokens &= tokens - 1) sum += weights[__builtin_ctz(tokens)];
    return sum;
  }

  const WeighTask& task_;
  const uint32_t rows_;
  TileReader<Isa> tiles_;
  const size_t query_bytes_;
  unsigned char* const queries_;
  TokenMask* const seen_;  // by query: of this tile
};

template <class Isa>
void weigh_blocks(const WeighTask& task, const SetOps& ops) {
  Scratch scratch(task.attend.scratch);
  WeighBlocks<Isa>(task, ops, scratch).run();
}

template <class Isa>
size_t weigh_scratch_bytes(const WeighTask& task, const SetOps& ops) {
  Scratch scratch(nullptr);
  WeighBlocks<Isa>(task, ops, scratch);
  return scratch.used();
}

}  // namespace pkv::kernels
