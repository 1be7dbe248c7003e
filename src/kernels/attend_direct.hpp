// Attention of a few rows, such as a decode step: K and V are multiplied in the layout of their
// tiles. The outer loops go over strips of a few tiles and over KV heads, so memory is read in runs
// of whole pages. Where the kernels of both dtypes take all tiles of a strip at once, and a row
// sees all of their tokens, the next loop goes over register tiles of rows: the exponentials of
// several tiles overlap. For everything else it goes over the tiles, and inside it over the rows.
// In both cases, each tile is loaded once per register tile of rows. The result of a row does not
// depend on the rows beside it.
#pragma once

#include "kernels/softmax.hpp"
#include "kernels/tile_reader.hpp"

namespace pkv::kernels {

template <class Isa>
class AttendDirect {
 public:
  AttendDirect(const AttendTask& task, const SetOps& ops, Scratch& scratch)
      : task_(task),
        rows_(task.queries * task.heads_per_kv_head),
        heads_(task.head_end - task.head_begin),
        tiles_(task.kv, ops, scratch),
        lead_in_order_(ops.lead_in_order),
        plain_k_(tiles_.plain_k()),
        plain_v_(tiles_.plain_v()),
        k_scores_(plain_k_ != nullptr ? *plain_k_ : tiles_.k()),
        v_accumulate_(plain_v_ != nullptr ? *plain_v_
                      : tiles_.latent()   ? ops_of(ops, PKV_F32)
                                          : tiles_.v()),
        accumulate_(task.results == PKV_BF16 ? v_accumulate_.accumulate_rounded
                                             : v_accumulate_.accumulate),
        query_bytes_(k_scores_.query_bytes(task.kv.k.dim)),
        max_rows_(k_scores_.max_rows < v_accumulate_.max_rows ? k_scores_.max_rows
                                                              : v_accumulate_.max_rows),
        takes_3_rows_(k_scores_.scores[0][index_of<3>] != nullptr &&
                      accumulate_[0][index_of<3>] != nullptr),
        takes_strips_(k_scores_.max_k_tiles == tiles_per_strip &&
                      v_accumulate_.max_v_tiles == tiles_per_strip),
        k_lead_(lead(task.kv.k)),
        v_lead_(tiles_.latent() || task.kv.layout == PKV_LAYOUT_PLAIN ? -1 : lead(task.kv.v)),
        linear_(k_lead_ >= 0 && v_lead_ >= 0),
        max_count_(linear_ ? 1 : tiles_per_strip),
        queries_(scratch.take<unsigned char>(query_bytes_ * (rows_ * heads_ + rows_read_beyond))),
        sums_(scratch.take<float>(size_t{rows_} * heads_ * tile_tokens)),
        v_floats_(scratch.take<float>(tiles_per_strip * max_tile_floats)) {}

  void run() {
    begin_rows();
    const Reach reach = reach_of(task_, tile_tokens);
    walk(task_.begin, reach.sinks_end);
    walk(reach.begin, reach.end);
    for (size_t i = 0; i < size_t{heads_} * rows_; i++) {
      task_.sum[i] = total_of<Isa>(sums_ + i * tile_tokens);
      close_row((saw_ >> (i % rows_ / task_.heads_per_kv_head) & 1) != 0, task_.max + i,
                task_.sum + i);
    }
  }

 private:
  // Some instruction sets always read as many rows as a register has.
  static constexpr uint32_t rows_read_beyond = []() -> uint32_t {
    if constexpr (requires { Isa::rows_at_once; }) return Isa::rows_at_once - 1;
    return 0;
  }();
  // Where the functions for some rows are in DtypeOps.
  template <unsigned rows>
  static constexpr unsigned index_of = rows == 3 ? 4 : __builtin_ctz(rows);
  static constexpr size_t max_tile_floats = size_t{max_dim} * tile_tokens;

  void begin_rows() {
    const uint32_t key_dim = task_.kv.k.dim, value_dim = task_.kv.v.dim;
    for (size_t i = 0; i < size_t{heads_} * rows_; i++) {
      if (query_bytes_ != 0)
        k_scores_.prepare_query(task_.q + i * key_dim, key_dim, task_.scale,
                                queries_ + i * query_bytes_);
      for (uint32_t t = 0; t < tile_tokens; t++) sums_[i * tile_tokens + t] = 0;
      for (uint32_t d = 0; d < value_dim; d++) task_.out[i * value_dim + d] = 0;
      task_.max[i] = -__builtin_inff();
    }
  }

  void walk(uint64_t begin, uint64_t end) {
    const uint64_t strip_tokens = uint64_t{max_count_} * tile_tokens;
    for (uint64_t at = begin / strip_tokens * strip_tokens; begin < end && at < end;
         at += strip_tokens) {
      count_ = 0;
      for (uint64_t tile = at; tile < at + strip_tokens && tile < end; tile += tile_tokens) {
        if (tile + tile_tokens <= begin || !look(tile)) continue;
        tiles_.put(count_, tile, range_mask(tile, begin, end));
        begins_[count_++] = tile;
      }
      find_together();
      next_count_ = 0;
      for (uint64_t tile = at + strip_tokens; tile < at + 2 * strip_tokens && tile < end;
           tile += tile_tokens)
        if (!in_hole(task_.kv, tile))
          tiles_.put_next(next_count_++, tile, range_mask(tile, tile, end));
      for (uint32_t head = 0; head < heads_; head++) attend_head(head);
    }
  }

  // Records which tokens of a tile each query sees; the tile gets number count_. Returns false if
  // no query sees any token of it.
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

  // Finds the rows that take all tiles of a strip at once: those that see all its tokens, if the
  // kernels of both dtypes can take several tiles.
  void find_together() {
    for (uint32_t row = 0; row < rows_; row++) {
      TokenMask all = takes_strips_ && count_ == tiles_per_strip ? all_tokens : 0;
      for (uint32_t i = 0; i < count_; i++)
        all &= row_sees_[i][row] = seen_[i][row / task_.heads_per_kv_head];
      together_[row] = all == all_tokens;
    }
  }

  // The tile and KV head to prefetch while tile i of a head is read.
  struct Ahead {
    uint32_t tile, kv_head;
  };
  Ahead after(uint32_t i, uint32_t head) const {
    if (!takes_strips_ && i + 1 < count_) return {i + 1, task_.head_begin + head};
    if (!takes_strips_) i = 0;
    if (head + 1 < heads_) return {i, task_.head_begin + head + 1};
    if (i < next_count_) return {tiles_per_strip + i, task_.head_begin};
    return {i, task_.head_begin + head};
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

  // The addresses of K and V of one head, and of the tiles to prefetch at the same time.
  struct HeadTiles {
    const unsigned char *k[tiles_per_strip], *v[tiles_per_strip], *next_k[tiles_per_strip],
        *next_v[tiles_per_strip];
    bool v_unpacked[tiles_per_strip];
  };

  // Finds the addresses of tile i of a head.
  void get(uint32_t i, uint32_t head, HeadTiles* at) {
    const uint32_t kv_head = task_.head_begin + head;
    at->v_unpacked[i] = false;
    if (plain_k_ != nullptr)
      at->k[i] = put_plain(tiles_.plain_keys(i, kv_head), k_tiles_ + i);
    else
      at->k[i] = tiles_.keys(i, kv_head);
    if (plain_v_ != nullptr) {
      at->v[i] = put_plain(tiles_.plain_values(i, kv_head), v_tiles_ + i);
    } else if (tiles_.latent()) {
      unpack_values(i, kv_head, at);
      at->v[i] = reinterpret_cast<const unsigned char*>(v_floats_ + i * max_tile_floats);
    } else {
      at->v[i] = tiles_.values(i, kv_head);
    }
    if constexpr (PrefetchesNear<Isa>) {
      at->next_k[i] = at->k[i] + Isa::prefetch_distance;
      at->next_v[i] = at->v[i] + Isa::prefetch_distance;
      return;
    }
    if (linear_) {
      at->next_k[i] = at->k[i] + k_lead_;
      at->next_v[i] = at->v[i] + v_lead_;
      return;
    }
    const Ahead next = after(i, head);
    at->next_k[i] = plain_k_ != nullptr ? put_plain(tiles_.keys_in_memory(next.tile, next.kv_head),
                                                    next_k_tiles_ + i)
                                        : tiles_.address_of_keys(next.tile, next.kv_head);
    at->next_v[i] =
        plain_v_ != nullptr
            ? put_plain(tiles_.values_in_memory(next.tile, next.kv_head), next_v_tiles_ + i)
        : tiles_.latent() ? at->v[i]
                          : tiles_.address_of_values(next.tile, next.kv_head);
  }

  static const unsigned char* put_plain(const PlainTile& tile, PlainTile* to) {
    *to = tile;
    return reinterpret_cast<const unsigned char*>(to);
  }

  int lead(const SideView& side) const {
    return lead_in_order_ != nullptr ? lead_in_order_(side.dtype, rows_, side.dim) : -1;
  }

  void attend_head(uint32_t head) {
    HeadTiles at;
    if (takes_strips_) {
      for (uint32_t i = 0; i < count_; i++) get(i, head, &at);
      const auto sees_all = [&](uint32_t row) { return together_[row]; };
      for (uint32_t row = 0; row < rows_;)
        row += sees_all(row) ? attend_run<tiles_per_strip>(head, row, 0, at, sees_all) : 1;
    }
    for (uint32_t i = 0; i < count_; i++) {
      if (!takes_strips_) get(i, head, &at);
      attend_tile(head, i, &at);
    }
  }

  // Processes tile i for the rows that do not take all tiles at once.
  void attend_tile(uint32_t head, uint32_t i, HeadTiles* at) {
    const TokenMask* const sees = row_sees_[i];
    const auto sees_all = [&](uint32_t row) { return sees[row] == all_tokens && !together_[row]; };
    for (uint32_t row = 0; row < rows_;) {
      if (sees_all(row)) {
        row += attend_run<1>(head, row, i, *at, sees_all);
      } else {
        if (sees[row] != 0 && !together_[row]) attend_part(head, row, i, at);
        row++;
      }
    }
  }

  // Processes a register tile of rows, from `row` on, that see all tokens of `tiles` tiles, from i
  // on. Returns the number of rows that it processed.
  template <unsigned tiles, class SeesAll>
  uint32_t attend_run(uint32_t head, uint32_t row, uint32_t i, const HeadTiles& at,
                      const SeesAll& sees_all) {
    uint32_t alike = 1;
    while (alike < max_rows_ && row + alike < rows_ && sees_all(row + alike)) alike++;
    if constexpr (Isa::direct_rows == 8)
      if (alike == 8) return attend_whole<8, tiles>(head, row, i, at);
    if (alike >= 4) return attend_whole<4, tiles>(head, row, i, at);
    if constexpr (tiles == 1)
      if (alike == 3 && takes_3_rows_) return attend_whole<3, tiles>(head, row, i, at);
    return alike >= 2 ? attend_whole<2, tiles>(head, row, i, at)
                      : attend_whole<1, tiles>(head, row, i, at);
  }

  template <unsigned rows, unsigned tiles>
  uint32_t attend_whole(uint32_t head, uint32_t row, uint32_t i, const HeadTiles& at) {
    alignas(64) float scores[tiles * rows][tile_tokens];
    const RowState first = state(head, row);
    constexpr unsigned size = index_of<rows>;
    k_scores_.scores[tiles - 1][size](query(head, row), task_.kv.k.dim, at.k + i, at.next_k + i,
                                      scores);
    for (uint32_t j = 0; j < tiles * rows && transforms(task_.transform); j++)
      transform(i + j / rows, head, row + j % rows, scores[j]);
    absorb<Isa, rows, tiles>(scores, first, task_.kv.v.dim, at.next_v + i);
    accumulate_[tiles - 1][size](at.v + i, at.next_v + i, scores, task_.kv.v.dim, first.out);
    return rows;
  }

  // Processes tile i for a row that sees only some of its tokens.
  void attend_part(uint32_t head, uint32_t row, uint32_t i, HeadTiles* at) {
    alignas(64) float scores[1][tile_tokens];
    const RowState first = state(head, row);
    k_scores_.scores[0][0](query(head, row), task_.kv.k.dim, at->k + i, at->next_k + i, scores);
    if (transforms(task_.transform)) transform(i, head, row, scores[0]);
    hide_unseen<Isa>(row_sees_[i][row], scores[0]);
    absorb<Isa, 1, 1>(scores, first, task_.kv.v.dim, at->next_v + i);
    if (!at->v_unpacked[i]) unpack_values(i, task_.head_begin + head, at);
    add_seen<Isa>(v_floats_ + i * max_tile_floats, task_.kv.v.dim, tile_tokens, row_sees_[i][row],
                  scores[0], task_.kv.v.dim, first.out);
  }

  void transform(uint32_t tile, uint32_t head, uint32_t row, float* scores) const {
    const uint32_t query_head =
        (task_.head_begin + head) * task_.heads_per_kv_head + row % task_.heads_per_kv_head;
    transform_scores<Isa>(task_.transform, query_head, task_.query[row / task_.heads_per_kv_head],
                          begins_[tile], scores);
  }

  void unpack_values(uint32_t i, uint32_t kv_head, HeadTiles* at) {
    float* const to = v_floats_ + i * max_tile_floats;
    if (plain_v_ != nullptr)
      plain_v_->stored->unpack_v(at->v[i], task_.kv.v.dim, to, task_.kv.v.dim, tile_tokens);
    else
      tiles_.unpack_values(i, kv_head, to, task_.kv.v.dim, tile_tokens);
    at->v_unpacked[i] = true;
  }

  const AttendTask& task_;
  const uint32_t rows_, heads_;
  TileReader<Isa> tiles_;
  int (*const lead_in_order_)(pkv_dtype dtype, uint32_t rows, uint32_t dim);
  // The functions for plain rows; NULL if K or V is read in tiles.
  const DtypeOps *const plain_k_, *const plain_v_;
  const DtypeOps& k_scores_;
  // The functions for the dtype of V when it is multiplied. If V is a part of K, it is first
  // unpacked to fp32.
  const DtypeOps& v_accumulate_;
  const DtypeOps::Accumulate (*const accumulate_)[DtypeOps::row_counts];
  const size_t query_bytes_;
  const uint32_t max_rows_;    // of a register tile
  const bool takes_3_rows_;    // both kernels have functions for 3 rows
  const bool takes_strips_;    // both kernels take all tiles of a strip at once
  const int k_lead_, v_lead_;  // bytes from what is read to what is prefetched, or -1
  const bool linear_;          // memory is read in its order, one tile at a time
  const uint32_t max_count_;   // tiles of a strip
  unsigned char* const queries_;
  float* const sums_;
  float* const v_floats_;
  // Plain tiles of a head, and those to prefetch.
  PlainTile k_tiles_[tiles_per_strip], v_tiles_[tiles_per_strip], next_k_tiles_[tiles_per_strip],
      next_v_tiles_[tiles_per_strip];
  uint32_t count_ = 0;                                    // tiles of this strip
  uint64_t begins_[tiles_per_strip];                      // their first positions
  TokenMask seen_[tiles_per_strip][min_matmul_rows];      // what each query sees of them
  TokenMask row_sees_[tiles_per_strip][min_matmul_rows];  // what each row sees of them
  bool together_[min_matmul_rows];                        // the row takes all of them at once
  uint32_t next_count_ = 0;                               // tiles of the next strip
  uint32_t saw_ = 0;                                      // one bit per query that saw a token
};

}  // namespace pkv::kernels
