// Attention of many rows, such as a prompt: K and V of one KV head are unpacked to fp32, a few
// tiles at a time, and multiplied with all rows of the head as matrices. The right-hand sides of
// both products lie in panels of 16 columns: the columns of scores are tokens, those of outputs are
// dims.
//
// A row of queries is called whole if it is the scale times a row of bf16 numbers, as with bf16
// queries. If the instruction set has a bf16 dot product, whole rows are multiplied with bf16 K as
// it is stored. Weights for bf16 V are rounded to bf16 if results become bf16, as GPU kernels do
// (Dao et al. 2022); the sums of weights are those of the unrounded weights.
#pragma once

#include "kernels/matmul.hpp"
#include "kernels/seen_rows.hpp"
#include "kernels/softmax.hpp"
#include "kernels/tile_reader.hpp"
#include "kernels/tiles_ahead.hpp"

namespace pkv::kernels {

// The distance in floats from one row of scores to the next. It is a constant, so that one register
// addresses all rows of a register tile. At most this many tokens are multiplied at a time.
inline constexpr uint32_t score_stride = 128;
// The same in words for whole rows.
inline constexpr uint32_t whole_stride = max_dim / 2;

// True if the instruction set has a bf16 dot product.
template <class Isa>
concept MultipliesWholeRows = requires { &KeyTile<Isa, PKV_BF16>::is_whole; };

template <class Isa>
class AttendMatmul {
 public:
  AttendMatmul(const AttendTask& task, Scratch& scratch)
      : task_(task),
        rows_(task.queries * task.heads_per_kv_head),
        step_(task.kv.k.dim + task.kv.v.dim > 512 ? 64 : score_stride),
        tiles_(task.kv, scratch),
        q_(scratch.take<float>(size_t{rows_} * task.kv.k.dim)),
        whole_q_(may_be_whole() ? scratch.take<uint32_t>(size_t{rows_} * whole_stride) : nullptr),
        scores_(scratch.take<float>(size_t{rows_} * score_stride)),
        k_(scratch.take<float>(size_t{step_} * task.kv.k.dim)),
        v_(scratch.take<float>(size_t{step_} * task.kv.v.dim)),
        k_tiles_(may_be_whole() ? scratch.take<unsigned char>(size_t{step_} * task.kv.k.dim * 2)
                                : nullptr),
        v_pairs_(may_round() ? scratch.take<unsigned char>(size_t{step_} * task.kv.v.dim * 2)
                             : nullptr),
        sums_(scratch.take<float>(size_t{rows_} * tile_tokens)),
        whole_rows_(scratch.take<bool>(rows_)),
        key_tiles_(scratch.take<const float*>(step_ / tile_tokens)),
        ahead_(task.kv),
        seen_(task, scratch) {}

  void run() {
    const Reach reach = reach_of(task_, step_);
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
  static constexpr uint32_t block_rows = Isa::matmul_rows;
  static constexpr uint32_t columns_at_once = 2 * Floats<Isa>::size;
  using WholeKeys = KeyTile<Isa, PKV_BF16>;

  bool may_round() const {
    return MultipliesWholeRows<Isa> && task_.results == PKV_BF16 && task_.kv.v.dtype == PKV_BF16 &&
           task_.kv.v.data != nullptr;
  }
  bool may_be_whole() const { return MultipliesWholeRows<Isa> && task_.kv.k.dtype == PKV_BF16; }

  void begin_head(uint32_t head) {
    head_ = head;
    seen_.begin_head();
    some_whole_ = some_not_ = false;
    const size_t first = size_t{head - task_.head_begin} * rows_;
    const uint32_t key_dim = task_.kv.k.dim;
    out_ = task_.out + first * task_.kv.v.dim;
    max_ = task_.max + first;
    sum_ = task_.sum + first;
    for_each_row_tile([&]<unsigned n>(uint32_t row) {
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

  // Writes a row of queries to every `stride`-th float from `to` on, unless it is whole.
  void put_query(uint32_t row, const float* q, float* to, uint32_t stride) {
    const uint32_t key_dim = task_.kv.k.dim;
    whole_rows_[row] = false;
    if constexpr (MultipliesWholeRows<Isa>) {
      if (may_be_whole() && WholeKeys::is_whole(q, key_dim, task_.scale)) {
        WholeKeys::put_whole(q, key_dim, task_.scale, whole_q_ + size_t{row} * whole_stride);
        whole_rows_[row] = some_whole_ = true;
        return;
      }
    }
    for (uint32_t d = 0; d < key_dim; d++) to[d * stride] = q[d];
    some_not_ = true;
  }

  void walk(uint64_t begin, uint64_t end) {
    for (uint64_t at = begin / step_ * step_; begin < end && at < end; at += step_) {
      const uint64_t from = at > begin ? at : begin, to = at + step_ < end ? at + step_ : end;
      seen_.begin_step(at, from, to);
      unpack();
      ahead_.begin(head_, at + step_, at + 2 * step_ < end ? at + 2 * step_ : end, products());
      multiply_scores();
      for (uint32_t row = 0; row < rows_; row++)
        if (seen_.end_of(row) != 0) weigh(row);
      multiply_values();
    }
  }

  // The number of products of register tiles in a step.
  uint32_t products() const {
    return (step_ + task_.kv.v.dim) / columns_at_once * (rows_ / block_rows + 1);
  }

  void unpack() {
    finite_ = true;
    rounds_ = may_round();
    for (uint32_t tile = seen_.first_tile(); tile < seen_.tiles_end(); tile++) {
      const TokenMask present = put(tile);
      key_tiles_[tile] = k_;  // any numbers: no row sees a tile that is not present
      if (present != 0) unpack_keys(tile);
      finite_ &= rounds_ ? copy_values(tile, present) : unpack_values(tile, present);
    }
    if (finite_ || !rounds_) return;
    rounds_ = false;
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
    if (present != 0) tiles_.unpack_values(0, head_, v, tile_tokens, size_t{step_} * tile_tokens);
    return clean_values(v, present);
  }

  bool copy_values([[maybe_unused]] uint32_t tile, [[maybe_unused]] TokenMask present) {
    if constexpr (MultipliesWholeRows<Isa>) {
      static constexpr unsigned char nothing[max_dim * tile_tokens * 2] = {};
      const unsigned char* const values = present != 0 ? tiles_.values(0, head_) : nothing;
      return ValueTile<Isa, PKV_BF16>::copy_panels(values, task_.kv.v.dim, present,
                                                   v_pairs_ + size_t{tile} * tile_tokens * 32,
                                                   size_t{step_} * 32);
    }
    return true;
  }

  void unpack_keys(uint32_t tile) {
    const uint32_t key_dim = task_.kv.k.dim;
    const unsigned char* const keys = tiles_.keys(0, head_);
    if (some_not_) put_key_tile(tile, keys);
    if constexpr (MultipliesWholeRows<Isa>)
      if (some_whole_)
        WholeKeys::copy_tile(keys, key_dim, k_tiles_ + size_t{tile} * tile_tokens * key_dim * 2);
  }

  // Packed fp32 tiles are multiplied where they are.
  void put_key_tile(uint32_t tile, const unsigned char* keys) {
    if (task_.kv.k.dtype == PKV_F32 && task_.kv.layout == PKV_LAYOUT_PACKED) {
      key_tiles_[tile] = reinterpret_cast<const float*>(keys);
      return;
    }
    float* const to = k_ + size_t{tile} * tile_tokens * task_.kv.k.dim;
    tiles_.k().unpack_k(keys, task_.kv.k.dim, to);
    key_tiles_[tile] = to;
  }

  // Writes zeros for tokens that are not present. Returns false if a number is not finite.
  [[gnu::noinline]] bool clean_values(float* v, TokenMask present) const {
    using F = Floats<Isa>;
    F poison(0.0f);
    for (uint32_t d = 0; d < task_.kv.v.dim; d += tile_tokens, v += size_t{step_} * tile_tokens) {
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

  // Cuts the rows into register tiles and calls visit.template operator()<n>(row) for each.
  template <class Visit>
  void for_each_row_tile(const Visit& visit) const {
    uint32_t row = 0;
    for (; row + block_rows <= rows_; row += block_rows) visit.template operator()<block_rows>(row);
    for (; row + 4 <= rows_; row += 4) visit.template operator()<4>(row);
    for (; row + 2 <= rows_; row += 2) visit.template operator()<2>(row);
    if (row < rows_) visit.template operator()<1>(row);
  }

  // The outer loop takes panels, the inner one rows, so that a panel stays in the L1 cache for all
  // rows.
  void multiply_scores() {
    const uint32_t columns_end = seen_.tiles_end() * tile_tokens;
    for (uint32_t column = seen_.first_tile() * tile_tokens; column < columns_end;
         column += columns_at_once) {
      const unsigned vectors = columns_end - column < columns_at_once ? 1 : 2;
      for_each_row_tile([&]<unsigned n>(uint32_t row) {
        if (seen_.end_of_rows(row, n) <= column) return;
        ahead_.prefetch();
        uint32_t whole = 0;
        for (uint32_t r = row; r < row + n; r++) whole += whole_rows_[r];
        const float* const q = q_ + size_t{row} * task_.kv.k.dim;
        if (whole == 0) return multiply_floats<n, n>(q, row, column, vectors);
        if (whole == n) return multiply_whole<n>(row, column, vectors);
        // Rows are multiplied one by one, so that the bits of a row do not depend on the rows
        // beside it.
        for (uint32_t r = 0; r < n; r++)
          whole_rows_[row + r] ? multiply_whole<1>(row + r, column, vectors)
                               : multiply_floats<1, n>(q + r, row + r, column, vectors);
      });
    }
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

  template <unsigned n>
  void multiply_whole([[maybe_unused]] uint32_t row, [[maybe_unused]] uint32_t column,
                      [[maybe_unused]] unsigned vectors) {
    if constexpr (MultipliesWholeRows<Isa>) {
      const uint32_t key_dim = task_.kv.k.dim;
      const unsigned char* b[2];
      put_columns(k_tiles_, size_t{tile_tokens} * key_dim * 2, column, b);
      float* const scores = scores_ + size_t{row} * score_stride + column;
      multiply_pair_rows<typename Isa::Dot, n, whole_stride, false>(
          vectors, whole_q_ + size_t{row} * whole_stride, b, key_dim / 2, task_.scale, scores,
          score_stride);
    }
  }

  // The addresses of two vectors of bf16 columns, in panels of 16 columns.
  static void put_columns(const unsigned char* panels, size_t panel_bytes, uint32_t column,
                          const unsigned char* (&b)[2]) {
    for (uint32_t i = 0; i < 2; i++) {
      const uint32_t at = column + i * static_cast<uint32_t>(Floats<Isa>::size);
      b[i] = panels + at / tile_tokens * panel_bytes + at % tile_tokens * WholeKeys::column_bytes;
    }
  }

  // Applies softcap and ALiBi to the scores of a row, and hides the tokens that the row does not
  // see.
  [[gnu::noinline]] void transform_and_hide(uint32_t row) {
    float* const scores = scores_ + size_t{row} * score_stride;
    for (uint32_t tile = seen_.first_tile(); tile * tile_tokens < seen_.end_of(row); tile++) {
      float* const at = scores + tile * tile_tokens;
      if (transforms(task_.transform))
        transform_scores<Isa>(
            task_.transform, head_ * task_.heads_per_kv_head + row % task_.heads_per_kv_head,
            task_.query[seen_.query_of(row)].position, seen_.position_of(tile), at);
      if (!seen_.row_sees_all(row)) hide_unseen<Isa>(seen_.seen_by_row(row, tile), at);
    }
  }

  // Turns the scores of a row into weights, up to its end.
  [[gnu::noinline]] void weigh(uint32_t row) {
    if (transforms(task_.transform) || !seen_.row_sees_all(row)) transform_and_hide(row);
    float* const scores = scores_ + size_t{row} * score_stride + seen_.first_tile() * tile_tokens;
    const uint32_t n = seen_.end_of(row) - seen_.first_tile() * tile_tokens;
    absorb_row<Isa>(scores, n, task_.kv.v.dim,
                    {out_ + size_t{row} * task_.kv.v.dim, max_ + row, sums_ + row * tile_tokens});
    if constexpr (MultipliesWholeRows<Isa>)
      if (rounds_) ValueTile<Isa, PKV_BF16>::round_weights(scores, n);
  }

  // Clears the weights of tokens that the row does not see, up to the end for its register tile.
  void clear_weights(uint32_t row, uint32_t end) {
    const uint32_t begin = seen_.first_tile() * tile_tokens,
                   seen = seen_.end_of(row) != 0 ? seen_.end_of(row) - begin : 0;
    float* const weights = scores_ + size_t{row} * score_stride + begin;
    const uint32_t shift = rounds_ ? 1 : 0;  // two weights per word
    for (uint32_t t = seen >> shift; t < (end - begin) >> shift; t++) weights[t] = 0;
  }

  void multiply_values() {
    if (!finite_) {
      add_row_by_row();
      return;
    }
    const uint32_t value_dim = task_.kv.v.dim, begin = seen_.first_tile() * tile_tokens;
    for_each_row_tile([&]<unsigned n>(uint32_t row) {
      const uint32_t end = seen_.end_of_rows(row, n);
      for (uint32_t r = row; r < row + n && end > begin; r++) clear_weights(r, end);
    });
    if (rounds_) return multiply_rounded();
    for (uint32_t column = 0; column < value_dim; column += columns_at_once) {
      const unsigned vectors = value_dim - column < columns_at_once ? 1 : 2;
      const float* b[2];
      for (unsigned n = 0; n < vectors; n++) {
        const uint32_t at = column + n * static_cast<uint32_t>(Floats<Isa>::size);
        b[n] = v_ + (size_t{at / tile_tokens} * step_ + begin) * tile_tokens + at % tile_tokens;
      }
      for_each_row_tile([&]<unsigned n>(uint32_t row) {
        const uint32_t end = seen_.end_of_rows(row, n);
        ahead_.prefetch();
        if (end > begin)
          multiply_rows<Isa, n, score_stride, 1>(
              vectors, scores_ + size_t{row} * score_stride + begin, b, end - begin, true,
              out_ + size_t{row} * value_dim + column, value_dim);
      });
    }
  }

  void multiply_rounded() {
    if constexpr (MultipliesWholeRows<Isa>) {
      const uint32_t value_dim = task_.kv.v.dim, begin = seen_.first_tile() * tile_tokens;
      for (uint32_t column = 0; column < value_dim; column += columns_at_once) {
        const unsigned vectors = value_dim - column < columns_at_once ? 1 : 2;
        const unsigned char* b[2];
        put_columns(v_pairs_ + begin * 32, size_t{step_} * 32, column, b);
        for_each_row_tile([&]<unsigned n>(uint32_t row) {
          const uint32_t end = seen_.end_of_rows(row, n);
          if (end <= begin) return;
          ahead_.prefetch();
          const uint32_t* const a =
              reinterpret_cast<const uint32_t*>(scores_ + size_t{row} * score_stride + begin);
          float* const c = out_ + size_t{row} * value_dim + column;
          multiply_pair_rows<typename Isa::Dot, n, score_stride, true>(
              vectors, a, b, (end - begin) / 2, 1, c, value_dim);
        });
      }
    }
  }

  // Used if V has a NaN or an infinity. 0 times that is NaN, which must not reach rows that do not
  // see it.
  void add_row_by_row() {
    const uint32_t value_dim = task_.kv.v.dim;
    for (uint32_t row = 0; row < rows_; row++)
      for (uint32_t tile = seen_.first_tile(); tile * tile_tokens < seen_.end_of(row); tile++)
        add_seen<Isa>(v_ + size_t{tile} * tile_tokens * tile_tokens, tile_tokens,
                      size_t{step_} * tile_tokens, seen_.seen_by_row(row, tile),
                      scores_ + size_t{row} * score_stride + tile * tile_tokens, value_dim,
                      out_ + size_t{row} * value_dim);
  }

  const AttendTask& task_;
  const uint32_t rows_;
  const uint32_t step_;  // tokens that are unpacked at a time
  TileReader<Isa> tiles_;
  float* const q_;                // rows that are not whole, packed by register tiles
  uint32_t* const whole_q_;       // whole rows as pairs of bf16
  float* const scores_;           // of a step; then weights
  float* const k_;                // K of a step, [tile][dim][16 tokens]
  float* const v_;                // V of a step, [16 dims][token][16]
  unsigned char* const k_tiles_;  // K of a step as it is stored, for whole rows
  unsigned char* const v_pairs_;  // V for weights of bf16, [16 dims][pair of tokens][16][2]
  float* const sums_;
  bool* const whole_rows_;         // by row: true if it is whole
  const float** const key_tiles_;  // by tile: its K in fp32
  TilesAhead<Isa> ahead_;
  SeenRows<Isa> seen_;
  uint32_t head_ = 0;
  bool finite_ = true;                          // all numbers of V in the step are finite
  bool rounds_ = false;                         // weights are rounded to bf16 in the step
  bool some_whole_ = false, some_not_ = false;  // true if some rows are whole, or not
  float* out_ = nullptr;
  float* max_ = nullptr;
  float* sum_ = nullptr;
};

}  // namespace pkv::kernels
