// Attention of a few rows: K and V are multiplied as they lie in their tiles. A few tiles outside, KV heads inside, then each of the tiles,
// the rows of the KV head innermost: memory is read in runs of whole pages, and a tile is loaded once for a register tile of rows.
// What a row gets does not depend on the rows beside it.
#pragma once

#include "kernels/softmax.hpp"
#include "kernels/tiles.hpp"

namespace pkv {

template <class Isa>
class Stream {
 public:
  Stream(const AttendTask& task, Work& work)
      : task_(task), rows_(task.queries * task.group), heads_(task.head_end - task.head_begin), tiles_(task.kv, work),
        floats_(format_of<Isa>(PKV_F32)), k_scores_(tiles_.k().direct ? tiles_.k() : floats_),
        v_accumulate_(!tiles_.latent() && tiles_.v().direct ? tiles_.v() : floats_), query_bytes_(k_scores_.query_bytes(task.kv.k.dim)),
        queries_(work.take<unsigned char>(query_bytes_ * rows_ * heads_)), sums_(work.take<float>(size_t{rows_} * heads_ * tile_tokens)),
        k_floats_(work.take<float>(size_t{max_dim} * tile_tokens)), v_floats_(work.take<float>(size_t{max_dim} * tile_tokens)) {}

  void run() {
    begin_rows();
    const Reach reach = reach_of(task_, tile_tokens);
    walk(task_.begin, reach.sinks_end);
    walk(reach.begin, reach.end);
    for (size_t i = 0; i < size_t{heads_} * rows_; i++) {
      task_.sum[i] = total_of<Isa>(sums_ + i * tile_tokens);
      close_row((saw_ >> (i % rows_ / task_.group) & 1) != 0, task_.max + i, task_.sum + i);
    }
  }

 private:
  void begin_rows() {
    const uint32_t key_dim = task_.kv.k.dim, value_dim = task_.kv.v.dim;
    for (size_t i = 0; i < size_t{heads_} * rows_; i++) {
      if (query_bytes_ != 0) k_scores_.prepare_query(task_.q + i * key_dim, key_dim, queries_ + i * query_bytes_);
      for (uint32_t t = 0; t < tile_tokens; t++) sums_[i * tile_tokens + t] = 0;
      for (uint32_t d = 0; d < value_dim; d++) task_.out[i * value_dim + d] = 0;
      task_.max[i] = -__builtin_inff();
    }
  }

  void walk(uint64_t begin, uint64_t end) {
    constexpr uint64_t step = tiles_together * tile_tokens;
    for (uint64_t at = begin / step * step; begin < end && at < end; at += step) {
      count_ = 0;
      for (uint64_t tile = at; tile < at + step && tile < end; tile += tile_tokens) {
        if (tile + tile_tokens <= begin || !look(tile)) continue;
        tiles_.put(count_, tile, range_mask(tile, begin, end));
        begins_[count_++] = tile;
      }
      more_ = at + step < end;
      if (more_) tiles_.put_next(at + step);
      for (uint32_t head = 0; head < heads_; head++)
        for (uint32_t i = 0; i < count_; i++) attend_head(i, head);
    }
  }

  // What each query sees of the tile that would be number count_; false if none sees any of it.
  bool look(uint64_t tile) {
    TokenMask any = 0;
    for (uint32_t i = 0; i < task_.queries; i++) {
      const TokenMask seen = seen_in_tile(task_, task_.query[i], tile);
      seen_[count_][i] = seen;
      any |= seen;
      if (seen != 0) saw_ |= 1u << i;
    }
    return any != 0;
  }

  // The tile and head that are wanted after these.
  struct Ahead {
    uint32_t tile, kv_head;
  };
  Ahead after(uint32_t i, uint32_t head) const {
    if (i + 1 < count_) return {i + 1, task_.head_begin + head};
    if (head + 1 < heads_) return {0, task_.head_begin + head + 1};
    return {more_ ? tiles_together : i, task_.head_begin};
  }

  const void* query(uint32_t head, uint32_t row) const {
    const size_t i = size_t{head} * rows_ + row;
    if (query_bytes_ != 0) return queries_ + i * query_bytes_;
    return task_.q + i * task_.kv.k.dim;
  }

  RowState state(uint32_t head, uint32_t row) const {
    const size_t i = size_t{head} * rows_ + row;
    return {task_.out + i * task_.kv.v.dim, task_.max + i, sums_ + i * tile_tokens};
  }

  struct HeadTile {
    uint32_t tile;
    const unsigned char *k, *v, *next_k, *next_v;
    bool v_unpacked;
  };

  void attend_head(uint32_t i, uint32_t head) {
    const uint32_t kv_head = task_.head_begin + head;
    const uint64_t tile = begins_[i];
    const Ahead next = after(i, head);
    HeadTile at = {i, tiles_.keys(i, kv_head), nullptr, tiles_.address_of_keys(next.tile, next.kv_head), nullptr, false};
    if (!tiles_.k().direct) {
      tiles_.k().unpack_k(at.k, task_.kv.k.dim, k_floats_);
      at.k = at.next_k = reinterpret_cast<const unsigned char*>(k_floats_);
    }
    if (&v_accumulate_ == &floats_ && (tiles_.latent() || !tiles_.v().direct)) {
      unpack_values(kv_head, &at);
      at.v = at.next_v = reinterpret_cast<const unsigned char*>(v_floats_);
    } else {
      at.v = tiles_.values(i, kv_head);
      at.next_v = tiles_.address_of_values(next.tile, next.kv_head);
    }
    for (uint32_t row = 0; row < rows_;) {
      const TokenMask seen = seen_[i][row / task_.group];
      uint32_t alike = 1;
      while (seen == all_tokens && alike < 4 && row + alike < rows_ && seen_[i][(row + alike) / task_.group] == all_tokens) alike++;
      if (seen != all_tokens) {
        if (seen != 0) attend_part(tile, head, row, seen, &at);
      } else if (alike == 4) {
        attend_whole<4>(tile, head, row, at);
      } else if (alike >= 2) {
        alike = 2;
        attend_whole<2>(tile, head, row, at);
      } else {
        attend_whole<1>(tile, head, row, at);
      }
      row += alike;
    }
  }

  // Rows that see the whole tile.
  template <unsigned rows>
  void attend_whole(uint64_t tile, uint32_t head, uint32_t row, const HeadTile& at) {
    alignas(64) float scores[rows][tile_tokens];
    const RowState first = state(head, row);
    k_scores_.scores[rows / 2](query(head, row), task_.kv.k.dim, at.k, at.next_k, scores);
    for (uint32_t r = 0; r < rows && transforms(task_.transform); r++) transform(tile, head, row + r, scores[r]);
    absorb<Isa, rows>(scores, first, task_.kv.v.dim, at.next_v);
    v_accumulate_.accumulate[rows / 2](at.v, at.next_v, scores, task_.kv.v.dim, first.out);
  }

  // One row that sees some tokens of the tile.
  void attend_part(uint64_t tile, uint32_t head, uint32_t row, TokenMask seen, HeadTile* at) {
    alignas(64) float scores[1][tile_tokens];
    const RowState first = state(head, row);
    k_scores_.scores[0](query(head, row), task_.kv.k.dim, at->k, at->next_k, scores);
    if (transforms(task_.transform)) transform(tile, head, row, scores[0]);
    hide_unseen<Isa>(seen, scores[0]);
    absorb<Isa, 1>(scores, first, task_.kv.v.dim, at->next_v);
    if (!at->v_unpacked) unpack_values(task_.head_begin + head, at);
    add_seen<Isa>(v_floats_, task_.kv.v.dim, tile_tokens, seen, scores[0], task_.kv.v.dim, first.out);
  }

  void transform(uint64_t tile, uint32_t head, uint32_t row, float* scores) const {
    const uint32_t query_head = (task_.head_begin + head) * task_.group + row % task_.group;
    transform_scores<Isa>(task_.transform, query_head, task_.query[row / task_.group].position, tile, scores);
  }

  void unpack_values(uint32_t kv_head, HeadTile* at) {
    tiles_.unpack_values(at->tile, kv_head, v_floats_, task_.kv.v.dim, tile_tokens);
    at->v_unpacked = true;
  }

  const AttendTask& task_;
  const uint32_t rows_, heads_;
  Tiles<Isa> tiles_;
  const Format<Isa>& floats_;
  const Format<Isa>& k_scores_;      // of K as it is multiplied: stored, or unpacked
  const Format<Isa>& v_accumulate_;
  const size_t query_bytes_;
  unsigned char* const queries_;
  float* const sums_;
  float* const k_floats_;
  float* const v_floats_;
  uint32_t count_ = 0;                                      // tiles that are attended to together
  uint64_t begins_[tiles_together];                         // their first positions
  TokenMask seen_[tiles_together][product_rows_least];      // what each query sees of them
  bool more_ = false;                                       // tiles follow after them
  uint32_t saw_ = 0;  // one bit per query
};

}  // namespace pkv
