// Attention of many rows, such as a prompt: K and V of one KV head are unpacked, a few tiles at a
// time, and multiplied with all rows of the head as matrices. The right-hand sides of both products
// lie in panels of 16 columns: the columns of scores are tokens, those of outputs are dims.
//
// K and V are unpacked to fp32, or to pairs of 16-bit numbers if the instruction set multiplies
// pairs of their dtype (pairs.hpp). A row of queries that cannot be a row of pairs is multiplied in
// fp32, and so is bf16 V of a strip in which a number is not finite.
#pragma once

#include "kernels/matmul.hpp"
#include "kernels/seen_rows.hpp"
#include "kernels/softmax.hpp"
#include "kernels/tile_reader.hpp"
#include "kernels/tiles_ahead.hpp"

namespace pkv::kernels {

template <class Isa>
class AttendMatmul {
 public:
  AttendMatmul(const AttendTask& task, const SetOps& ops, Scratch& scratch)
      : task_(task),
        rows_(task.queries * task.heads_per_kv_head),
        strip_tokens_(task.kv.k.dim + task.kv.v.dim > 512 ? 64 : score_stride),
        tiles_(task.kv, ops, scratch),
        q_(scratch.take<float>(size_t{rows_} * task.kv.k.dim)),
        key_pairs_(tiles_.k().stored->key_pairs),
        value_pairs_(may_have_value_pairs() ? tiles_.v().stored->value_pairs : nullptr),
        q_pairs_(key_pairs_ ? scratch.take<uint32_t>(size_t{rows_} * pair_stride) : nullptr),
        q_units_(key_pairs_ ? scratch.take<float>(rows_) : nullptr),
        scores_(scratch.take<float>(size_t{rows_} * score_stride)),
        k_(scratch.take<float>(size_t{strip_tokens_} * task.kv.k.dim)),
        v_(scratch.take<float>(size_t{strip_tokens_} * task.kv.v.dim)),
        k_pairs_(key_pairs_
                     ? scratch.take<unsigned char>(k_tile_bytes() * strip_tokens_ / tile_tokens)
                     : nullptr),
        v_pairs_(value_pairs_
                     ? scratch.take<unsigned char>(size_t{strip_tokens_} * task.kv.v.dim * 2)
                     : nullptr),
        v_scales_(value_pairs_ ? scratch.take<float>(size_t{strip_tokens_} *
                                                     value_pairs_->scales(task.kv.v.dim))
                               : nullptr),
        weight_units_(value_pairs_ ? scratch.take<float>(rows_) : nullptr),
        sums_(scratch.take<float>(size_t{rows_} * tile_tokens)),
        row_in_pairs_(scratch.take<bool>(rows_)),
        key_tiles_(scratch.take<const float*>(strip_tokens_ / tile_tokens)),
        pair_tiles_(scratch.take<const unsigned char*>(strip_tokens_ / tile_tokens)),
        ahead_(task.kv),
        seen_(task, scratch) {}

  void run() {
    const Reach reach = reach_of(task_, strip_tokens_);
    for (uint32_t head = task_.head_begin; head < task_.head_end; head++) {
      begin_head(head);
      walk(task_.begin, reach.sinks_end);
      walk(reach.begin, reach.end);
      for (uint32_t row = 0; row < rows_; row++) {
        sum_[row] = total_of<Isa>(sums_ + row * tile_tokens);
        close_row(seen_.saw(row), max_ + row, sum_ + row);
      }
    }
  }

 private:
  static constexpr uint32_t columns_at_once = 2 * Floats<Isa>::size;
  // The rows of register tiles, by size: matmul_rows, 4, 2 and 1.
  template <unsigned size>
  static constexpr unsigned tile_rows = size == 0 ? Isa::matmul_rows : 8 >> size;

  // Weights may be rounded to bf16 only for results in bf16.
  bool may_have_value_pairs() const {
    return task_.kv.v.data != nullptr &&
           (task_.kv.v.dtype != PKV_BF16 || task_.results == PKV_BF16);
  }
  size_t k_tile_bytes() const { return key_pairs_->tile_bytes(task_.kv.k.dim); }

  void begin_head(uint32_t head) {
    head_ = head;
    seen_.begin_head();
    some_in_pairs_ = some_not_ = false;
    const size_t first = size_t{head - task_.head_begin} * rows_;
    const uint32_t key_dim = task_.kv.k.dim;
    out_ = task_.out + first * task_.kv.v.dim;
    max_ = task_.max + first;
    sum_ = task_.sum + first;
    for_each_row_tile([&]<unsigned size>(uint32_t row) {
      constexpr unsigned n = tile_rows<size>;
      for (uint32_t r = 0; r < n; r++)
        put_query(row + r, task_.q + (first + row + r) * key_dim, q_ + size_t{row} * key_dim + r,
                  n);
    });
    for (uint32_t row = 0; row < rows_; row++) {
      for (uint32_t d = 0; d < task_.kv.v.dim; d++) out_[size_t{row} * task_.kv.v.dim + d] = 0;
      for (uint32_t t = 0; t < tile_tokens; t++) sums_[row * tile_tokens + t] = 0;
      max_[row] = -__builtin_inff();
    }
  }

  // Writes a row of queries in pairs, or else to every `stride`-th float from `to` on.
  void put_query(uint32_t row, const float* q, float* to, uint32_t stride) {
    const uint32_t key_dim = task_.kv.k.dim;
    row_in_pairs_[row] =
        key_pairs_ != nullptr &&
        key_pairs_->put_query(q, key_dim, task_.scale, q_pairs_ + size_t{row} * pair_stride,
                              q_units_ + row);
    (row_in_pairs_[row] ? some_in_pairs_ : some_not_) = true;
    for (uint32_t d = 0; d < key_dim && !row_in_pairs_[row]; d++) to[d * stride] = q[d];
  }

  void walk(uint64_t begin, uint64_t end) {
    for (uint64_t at = begin / strip_tokens_ * strip_tokens_; begin < end && at < end;
         at += strip_tokens_) {
      const uint64_t from = at > begin ? at : begin,
                     to = at + strip_tokens_ < end ? at + strip_tokens_ : end;
      seen_.begin_strip(at, from, to);
      unpack();
      ahead_.begin_after(at, strip_tokens_, begin, end, head_, task_.head_end, products());
      multiply_scores();
      weigh();
      if (finite_ || v_in_pairs_) multiply_values();
      if (!finite_) add_row_by_row();
    }
  }

  // The number of products of register tiles in a strip.
  uint32_t products() const {
    return (strip_tokens_ + task_.kv.v.dim) / columns_at_once * (rows_ / tile_rows<0> + 1);
  }

  void unpack() {
    finite_ = true;
    v_in_pairs_ = value_pairs_ != nullptr;
    for (uint32_t tile = seen_.first_tile(); tile < seen_.tiles_end(); tile++) {
      const TokenMask present = put(tile);
      key_tiles_[tile] = k_;  // any numbers: no row sees a tile that is not present
      pair_tiles_[tile] = k_pairs_;
      if (present != 0) unpack_keys(tile);
      finite_ &= v_in_pairs_ ? copy_values(tile, present) : unpack_values(tile, present);
    }
    if (finite_ || !v_in_pairs_) return;
    v_in_pairs_ = value_pairs_->skip_not_finite;
    for (uint32_t tile = seen_.first_tile(); tile < seen_.tiles_end(); tile++)
      unpack_values(tile, put(tile));
  }

  // Prepares to read a tile. Returns the tokens that can be read.
  TokenMask put(uint32_t tile) {
    const TokenMask present = seen_.present(tile);
    if (present != 0) tiles_.put(0, seen_.position_of(tile), present);
    return present;
  }

  bool unpack_values(uint32_t tile, TokenMask present) {
    float* const v = v_ + size_t{tile} * tile_tokens * tile_tokens;
    if (present != 0)
      tiles_.unpack_values(0, head_, v, tile_tokens, size_t{strip_tokens_} * tile_tokens);
    return clean_values(v, present);
  }

  bool copy_values(uint32_t tile, TokenMask present) {
    const unsigned char* const values = present != 0 ? tiles_.values(0, head_) : nullptr;
    return value_pairs_->copy(values, task_.kv.v.dim, present, strip_tokens_,
                              v_pairs_ + size_t{tile} * tile_tokens * 32,
                              v_scales_ + tile * tile_tokens);
  }

  void unpack_keys(uint32_t tile) {
    const unsigned char* const keys = tiles_.keys(0, head_);
    if (some_not_) put_key_tile(tile, keys);
    if (some_in_pairs_) put_key_pairs(tile, keys);
  }

  bool packed() const { return task_.kv.layout == PKV_LAYOUT_PACKED; }

  // Packed tiles that need no conversion are multiplied where they are.
  void put_key_pairs(uint32_t tile, const unsigned char* keys) {
    if (key_pairs_->copy == nullptr && packed()) {
      pair_tiles_[tile] = keys;
      return;
    }
    unsigned char* const to = k_pairs_ + tile * k_tile_bytes();
    if (key_pairs_->copy != nullptr)
      key_pairs_->copy(keys, task_.kv.k.dim, to);
    else
      __builtin_memcpy(to, keys, k_tile_bytes());
    pair_tiles_[tile] = to;
  }

  void put_key_tile(uint32_t tile, const unsigned char* keys) {
    if (task_.kv.k.dtype == PKV_F32 && packed()) {
      key_tiles_[tile] = reinterpret_cast<const float*>(keys);
      return;
    }
    float* const to = k_ + size_t{tile} * tile_tokens * task_.kv.k.dim;
    tiles_.k().stored->unpack_k(keys, task_.kv.k.dim, to);
    key_tiles_[tile] = to;
  }

  // Writes zeros for tokens that are not present. Returns false if a number is not finite.
  [[gnu::noinline]] bool clean_values(float* v, TokenMask present) const {
    using F = Floats<Isa>;
    F poison(0.0f);
    for (uint32_t d = 0; d < task_.kv.v.dim;
         d += tile_tokens, v += size_t{strip_tokens_} * tile_tokens) {
      for (uint32_t t = 0; t < tile_tokens; t++) {
        for (uint32_t n = 0; n < tile_tokens; n += F::size) {
          const F x = F::load_aligned(v + t * tile_tokens + n);
          if ((present >> t & 1) == 0)
            F(0.0f).store_aligned(v + t * tile_tokens + n);
          else
            poison += x - x;
        }
      }
    }
    return xsimd::all(poison == poison);
  }

  // Cuts the rows into register tiles and calls visit.template operator()<size>(row) for each. It
  // has tile_rows<size> rows.
  template <class Visit>
  void for_each_row_tile(const Visit& visit) const {
    uint32_t row = 0;
    for (; row + tile_rows<0> <= rows_; row += tile_rows<0>) visit.template operator()<0>(row);
    for (; row + tile_rows<1> <= rows_; row += tile_rows<1>) visit.template operator()<1>(row);
    for (; row + tile_rows<2> <= rows_; row += tile_rows<2>) visit.template operator()<2>(row);
    if (row < rows_) visit.template operator()<3>(row);
  }

  // The outer loop takes panels, the inner one rows, so that a panel stays in the L1 cache for all
  // rows.
  void multiply_scores() {
    const uint32_t columns_end = seen_.tiles_end() * tile_tokens;
    for (uint32_t column = seen_.first_tile() * tile_tokens; column < columns_end;
         column += columns_at_once) {
      const unsigned vectors = columns_end - column < columns_at_once ? 1 : 2;
      for_each_row_tile([&]<unsigned size>(uint32_t row) {
        constexpr unsigned n = tile_rows<size>;
        if (seen_.end_of_rows(row, n) <= column) return;
        ahead_.prefetch();
        const float* const q = q_ + size_t{row} * task_.kv.k.dim;
        const uint32_t in_pairs = rows_in_pairs(row, n);
        if (in_pairs == 0) return multiply_floats<n, n>(q, row, column, vectors);
        if (in_pairs == n) return multiply_pairs<size>(row, column, vectors);
        // Rows are multiplied one by one, so that the bits of a row do not depend on the rows
        // beside it.
        for (uint32_t r = 0; r < n; r++)
          row_in_pairs_[row + r] ? multiply_pairs<3>(row + r, column, vectors)
                                 : multiply_floats<1, n>(q + r, row + r, column, vectors);
      });
    }
  }

  // Returns how many of the n rows from `row` on are in pairs.
  uint32_t rows_in_pairs(uint32_t row, uint32_t n) const {
    if (!some_in_pairs_ || !some_not_) return some_in_pairs_ ? n : 0;
    uint32_t in_pairs = 0;
    for (uint32_t r = row; r < row + n; r++) in_pairs += row_in_pairs_[r];
    return in_pairs;
  }

  // Numbers of a row of q are `stride` apart.
  template <unsigned n, uint32_t stride>
  void multiply_floats(const float* q, uint32_t row, uint32_t column, unsigned vectors) {
    const float* b[2];
    for (unsigned i = 0; i < vectors; i++) {
      const uint32_t at = column + i * static_cast<uint32_t>(Floats<Isa>::size);
      b[i] = key_tiles_[at / tile_tokens] + at % tile_tokens;
    }
    multiply_rows<Isa, n, 1, stride>(vectors, q, b, task_.kv.k.dim, false,
                                     scores_ + size_t{row} * score_stride + column, score_stride);
  }

  template <unsigned size>
  void multiply_pairs(uint32_t row, uint32_t column, unsigned vectors) {
    const unsigned char* b[2];
    for (uint32_t i = 0; i < vectors; i++) {
      const uint32_t at = column + i * static_cast<uint32_t>(Floats<Isa>::size);
      b[i] = pair_tiles_[at / tile_tokens] + at % tile_tokens * key_pairs_->column_bytes;
    }
    key_pairs_->multiply[size](vectors, q_pairs_ + size_t{row} * pair_stride, q_units_ + row, b,
                               task_.kv.k.dim, scores_ + size_t{row} * score_stride + column);
  }

  // Transforms the scores of a row, and hides the tokens that the row does not see.
  [[gnu::noinline]] void transform_and_hide(uint32_t row) {
    float* const scores = scores_ + size_t{row} * score_stride;
    for (uint32_t tile = seen_.first_tile(); tile * tile_tokens < seen_.end_of(row); tile++) {
      float* const at = scores + tile * tile_tokens;
      if (transforms(task_.transform))
        transform_scores<Isa>(task_.transform,
                              head_ * task_.heads_per_kv_head + row % task_.heads_per_kv_head,
                              task_.query[seen_.query_of(row)], seen_.position_of(tile), at);
      if (!seen_.row_sees_all(row)) hide_unseen<Isa>(seen_.seen_by_row(row, tile), at);
    }
  }

  // Turns the scores of all rows into weights. Rows of a register tile get weights up to the end
  // for all of them: 0 where a row sees nothing.
  void weigh() {
    const uint32_t begin = seen_.first_tile() * tile_tokens;
    for_each_row_tile([&]<unsigned size>(uint32_t row) {
      const uint32_t end = seen_.end_of_rows(row, tile_rows<size>);
      for (uint32_t r = row; r < row + tile_rows<size> && end > begin; r++) weigh(r, begin, end);
    });
  }

  [[gnu::noinline]] void weigh(uint32_t row, uint32_t begin, uint32_t end) {
    const uint32_t value_dim = task_.kv.v.dim, seen_end = seen_.end_of(row);
    const uint32_t n = seen_end != 0 ? seen_end - begin : 0;
    if (n != 0 && (transforms(task_.transform) || !seen_.row_sees_all(row)))
      transform_and_hide(row);
    float* const scores = scores_ + size_t{row} * score_stride + begin;
    const RowState state{out_ + size_t{row} * value_dim, max_ + row, sums_ + row * tile_tokens};
    if (v_in_pairs_)
      weight_units_[row] =
          value_pairs_->absorb(scores, n, end - begin, v_scales_ + begin, value_dim, state);
    else
      absorb_row<Isa>(scores, n, end - begin, value_dim, state);
  }

  void multiply_values() {
    const uint32_t value_dim = task_.kv.v.dim, begin = seen_.first_tile() * tile_tokens;
    for (uint32_t column = 0; column < value_dim; column += columns_at_once) {
      const unsigned vectors = value_dim - column < columns_at_once ? 1 : 2;
      for_each_row_tile([&]<unsigned size>(uint32_t row) {
        const uint32_t end = seen_.end_of_rows(row, tile_rows<size>);
        if (end <= begin) return;
        ahead_.prefetch();
        add_values<size>(row, column, vectors, begin, end);
      });
    }
  }

  // Adds the products of weights and V to some columns of the outputs of a register tile.
  template <unsigned size>
  void add_values(uint32_t row, uint32_t column, unsigned vectors, uint32_t begin, uint32_t end) {
    const uint32_t value_dim = task_.kv.v.dim;
    const float* const weights = scores_ + size_t{row} * score_stride + begin;
    float* const out = out_ + size_t{row} * value_dim + column;
    if (v_in_pairs_) {
      const unsigned char* b[2];
      for (uint32_t i = 0; i < vectors; i++) {
        const uint32_t at = column + i * static_cast<uint32_t>(Floats<Isa>::size);
        b[i] = v_pairs_ + (size_t{at / tile_tokens} * strip_tokens_ + begin) * 32 +
               at % tile_tokens * value_pairs_->column_bytes;
      }
      const float* const scales =
          v_scales_ + strip_tokens_ * value_pairs_->scale_of(column) + begin;
      value_pairs_->multiply[size](vectors, weights, weight_units_ + row, b, scales, end - begin,
                                   out, value_dim);
      return;
    }
    const float* b[2];
    for (unsigned n = 0; n < vectors; n++) {
      const uint32_t at = column + n * static_cast<uint32_t>(Floats<Isa>::size);
      b[n] =
          v_ + (size_t{at / tile_tokens} * strip_tokens_ + begin) * tile_tokens + at % tile_tokens;
    }
    multiply_rows<Isa, tile_rows<size>, score_stride, 1>(vectors, weights, b, end - begin, true,
                                                         out, value_dim);
  }

  // Used if V has a NaN or an infinity. 0 times that is NaN, which must not reach rows that do not
  // see it. If V is in pairs, all other numbers have been added, and any weights make NaN.
  void add_row_by_row() {
    alignas(64) static constexpr float no_weights[tile_tokens] = {};
    const uint32_t value_dim = task_.kv.v.dim;
    for (uint32_t row = 0; row < rows_; row++)
      for (uint32_t tile = seen_.first_tile(); tile * tile_tokens < seen_.end_of(row); tile++)
        add_seen<Isa>(
            v_ + size_t{tile} * tile_tokens * tile_tokens, tile_tokens,
            size_t{strip_tokens_} * tile_tokens, seen_.seen_by_row(row, tile),
            v_in_pairs_ ? no_weights : scores_ + size_t{row} * score_stride + tile * tile_tokens,
            value_dim, out_ + size_t{row} * value_dim);
  }

  const AttendTask& task_;
  const uint32_t rows_;
  const uint32_t strip_tokens_;  // tokens that are unpacked at a time
  TileReader<Isa> tiles_;
  float* const q_;  // rows that are not in pairs, packed by register tiles
  // NULL if K or V is not multiplied in pairs. Then their arrays are NULL, too.
  const KeyPairOps* const key_pairs_;
  const ValuePairOps* const value_pairs_;
  uint32_t* const q_pairs_;
  float* const q_units_;          // by row
  float* const scores_;           // of a strip; then weights
  float* const k_;                // K of a strip, [tile][dim][16 tokens]
  float* const v_;                // V of a strip, [16 dims][token][16]
  unsigned char* const k_pairs_;  // K of a strip by tiles
  unsigned char* const v_pairs_;  // V of a strip, in panels of 16 dims
  float* const v_scales_;         // [scale][token of the strip]
  float* const weight_units_;     // by row
  float* const sums_;
  bool* const row_in_pairs_;
  const float** const key_tiles_;           // by tile: its K in fp32
  const unsigned char** const pair_tiles_;  // and in pairs
  TilesAhead<Isa> ahead_;
  SeenRows<Isa> seen_;
  uint32_t head_ = 0;
  bool finite_ = true;                             // all numbers of V in the strip are finite
  bool v_in_pairs_ = false;                        // V of the strip is multiplied in pairs
  bool some_in_pairs_ = false, some_not_ = false;  // true if some rows are in pairs, or not
  float* out_ = nullptr;
  float* max_ = nullptr;
  float* sum_ = nullptr;
};

}  // namespace pkv::kernels
