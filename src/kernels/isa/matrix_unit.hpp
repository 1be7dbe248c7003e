// Attention of many rows by a matrix unit, which multiplies tile registers of 16 x 32 bf16 numbers
// (AMX). K and V become bf16 parts (bf16_parts.hpp), some tiles at a time. A block of rows goes
// over them in segments: the scores of one segment are computed while those of the segment before
// become weights, since the unit works beside the vector units. The scores of two segments, the
// outputs and the queries of a block fit into the L1 cache.
#pragma once

#include "kernels/drivers.hpp"
#include "kernels/isa/avx512_shared.hpp"
#include "kernels/isa/few_rows.hpp"
#include "kernels/matmul.hpp"
#include "kernels/seen_rows.hpp"
#include "kernels/tiles_ahead.hpp"

namespace pkv::kernels {

template <class Isa, class Unit>
class AttendMatrixUnit {
 public:
  AttendMatrixUnit(const AttendTask& task, const SetOps& ops, Scratch& scratch)
      : task_(task),
        rows_(task.queries * task.heads_per_kv_head),
        key_dim_(task.kv.k.dim),
        value_dim_(task.kv.v.dim),
        padded_dim_((key_dim_ + unit_depth - 1) / unit_depth * unit_depth),
        latent_(task.kv.v.data == nullptr),
        key_format_(format_of(task.kv.k).dtype),
        value_format_(format_of(latent_ ? task.kv.k : task.kv.v).dtype),
        key_parts_(parts_of(key_format_)),
        value_parts_(parts_of(latent_ && key_format_ == PKV_INT8 ? PKV_F32 : value_format_)),
        weight_parts_(parts_of_weights(task.results)),
        rounded_keys_((task.results == PKV_F16 && key_format_ == PKV_F16) ||
                      key_format_ == PKV_Q8_0 || key_format_ == PKV_Q4_0),
        rounded_values_(task.results == PKV_F16 && value_format_ == PKV_F16),
        strip_tokens_(tokens_of_strip(key_parts_ * padded_dim_ + value_parts_ * value_dim_)),
        tiles_(task.kv, ops, scratch),
        q_(scratch.take<unsigned char>(q_part() * max_parts)),
        k_(scratch.take<unsigned char>(k_part() * key_parts_)),
        v_(scratch.take<unsigned char>(v_part() * value_parts_)),
        weights_(scratch.take<unsigned char>(weights_part() * weight_parts_)),
        scores_{scratch.take<float>(size_t{block_rows} * score_stride),
                scratch.take<float>(size_t{block_rows} * score_stride)},
        k_scales_(scratch.take<float>(strip_tokens_)),
        v_scales_(scratch.take<float>(strip_tokens_)),
        floats_(scratch.take<float>(size_t{max_dim} * tile_tokens)),
        sums_(scratch.take<float>(size_t{rows_} * tile_tokens)),
        query_parts_(scratch.take<QueryParts>(rows_)),
        key_blocks_(scratch.take<const unsigned char*>(strip_tokens_ / tile_tokens)),
        bad_values_(scratch.take<TokenMask>(strip_tokens_ / tile_tokens)),
        ahead_(task.kv),
        seen_(task, scratch) {}

  void run() {
    const typename Unit::KeptConfig kept;
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
  // Rows that are multiplied at a time, two tile registers of them.
  static constexpr uint32_t block_rows = 2 * unit_rows;
  // Tokens whose scores are computed at a time.
  static constexpr uint32_t segment_tokens = 128;
  // The distances of rows of scores and of weights. If they were powers of 2, rows would compete
  // for the same lines of the L1 cache.
  static constexpr uint32_t score_stride = segment_tokens + tile_tokens;
  static constexpr size_t weights_stride = segment_tokens * 2 + 64;

  // The number of tokens whose K and V fit into the L2 cache, in whole segments.
  static uint32_t tokens_of_strip(uint32_t parts_of_token) {
    const uint32_t segments = (384u << 10) / (parts_of_token * 2) / segment_tokens;
    return (segments > 4 ? 4 : segments < 1 ? 1 : segments) * segment_tokens;
  }

  size_t q_part() const { return size_t{rows_} * padded_dim_ * 2; }
  size_t k_part() const { return size_t{strip_tokens_} * padded_dim_ * 2; }
  size_t v_part() const { return size_t{strip_tokens_} * value_dim_ * 2; }
  static constexpr size_t weights_part() { return block_rows * weights_stride; }
  static unsigned last_product(bool rounded) { return rounded ? 1 : max_parts - 1; }

  // ---- Queries ----

  void begin_head(uint32_t head) {
    head_ = head;
    seen_.begin_head();
    const size_t first = size_t{head - task_.head_begin} * rows_;
    out_ = task_.out + first * value_dim_;
    max_ = task_.max + first;
    sum_ = task_.sum + first;
    for (uint32_t row = 0; row < rows_; row += block_rows)
      begin_rows(first, row, rows_ - row < block_rows ? rows_ : row + block_rows);
    for (uint32_t row = 0; row < rows_; row++) max_[row] = -__builtin_inff();
    __builtin_memset(out_, 0, size_t{rows_} * value_dim_ * sizeof(float));
    __builtin_memset(sums_, 0, size_t{rows_} * tile_tokens * sizeof(float));
  }

  // Writes the queries of a block of rows in parts. `first` is the number of the head's first row.
  void begin_rows(size_t first, uint32_t begin, uint32_t end) {
    const auto query = [&](uint32_t row) { return task_.q + (first + row) * key_dim_; };
    for (uint32_t row = begin; row < end; row++)
      query_parts_[row] = find_query_parts(query(row), key_dim_, task_.scale, rounded_keys_);
    const unsigned parts = parts_of_rows(begin, end);
    for (uint32_t row = begin; row < end; row++)
      put_query_parts(query(row), key_dim_, padded_dim_, query_parts_[row], rounded_keys_, parts,
                      q_ + size_t{row} * padded_dim_ * 2, q_part());
  }

  // The largest number of parts of some rows of queries.
  unsigned parts_of_rows(uint32_t begin, uint32_t end) const {
    unsigned parts = 1;
    for (uint32_t row = begin; row < end; row++)
      parts = query_parts_[row].count > parts ? query_parts_[row].count : parts;
    return parts;
  }

  // ---- Strips ----

  void walk(uint64_t begin, uint64_t end) {
    for (uint64_t at = begin / strip_tokens_ * strip_tokens_; begin < end && at < end;
         at += strip_tokens_) {
      seen_.begin_strip(at, at > begin ? at : begin,
                        at + strip_tokens_ < end ? at + strip_tokens_ : end);
      unpack();
      ahead_.begin_after(at, strip_tokens_, begin, end, head_, task_.head_end,
                         rows_ * ((strip_tokens_ + segment_tokens - 1) / segment_tokens));
      for (uint32_t row = 0; row < rows_; row += block_rows)
        multiply_block_of_rows(row, rows_ - row < block_rows ? rows_ - row : block_rows);
    }
  }

  // K and V are split into parts from the first tile on. Its number is even, because a tile
  // register has the weights of two tiles.
  uint32_t first_tile() const { return seen_.first_tile() / 2 * 2; }
  uint32_t first_token() const { return first_tile() * tile_tokens; }

  void unpack() {
    has_bad_values_ = false;
    for (uint32_t tile = first_tile(); tile < (seen_.tiles_end() + 1) / 2 * 2; tile++) {
      const bool read = tile >= seen_.first_tile() && tile < seen_.tiles_end();
      const TokenMask present = read ? seen_.present(tile) : 0;
      if (present != 0) tiles_.put(0, seen_.position_of(tile), present);
      unpack_keys(tile, present);
      unpack_values(tile, present);
    }
  }

  // Returns byte number i of each word, in two's complement, as fp32. The lower halves are 0.
  template <unsigned i>
  static __m512i integers(__m512i words) {
    return _mm512_castps_si512(
        _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(words, 24 - 8 * i), 24)));
  }

  // Returns two bytes of each word as a pair of bf16 numbers, which are exact.
  template <unsigned first, unsigned second>
  static __m512i integer_pairs(__m512i words) {
    return pair_parts(integers<first>(words), integers<second>(words));
  }

  // Writes int8 K without its scales, which go to `scales`.
  void put_integer_keys(TokenMask present, unsigned char* to, float* scales) {
    if (present == 0) {
      __builtin_memset(to, 0, size_t{padded_dim_} * tile_tokens * 2);
      return;
    }
    const unsigned char* const tile = tiles_.keys(0, head_);
    _mm512_store_ps(scales, _mm512_loadu_ps(tile + size_t{key_dim_} * tile_tokens));
    for (uint32_t d = 0; d < padded_dim_; d += 4, to += 128) {
      const __m512i words = d < key_dim_ ? _mm512_loadu_si512(tile + size_t{d} * tile_tokens)
                                         : _mm512_setzero_si512();
      _mm512_store_si512(to, integer_pairs<0, 1>(words));
      _mm512_store_si512(to + 64, integer_pairs<2, 3>(words));
    }
  }

  // Splits the K of a tile into parts, unless it is bf16 or int8. bf16 is multiplied in its layout,
  // unless some of it must become 0. Numbers that are not finite result in a NaN, which
  // finish_scores() finds.
  void unpack_keys(uint32_t tile, TokenMask present) {
    unsigned char* const to = k_ + size_t{tile} * tile_tokens * padded_dim_ * 2;
    key_blocks_[tile] = to;
    if (task_.kv.k.dtype == PKV_INT8) {
      put_integer_keys(present, to, k_scales_ + tile * tile_tokens);
    } else if (task_.kv.k.dtype != PKV_BF16) {
      if (present != 0) tiles_.k().stored->unpack_k(tiles_.keys(0, head_), key_dim_, floats_);
      cut_keys(static_cast<__mmask16>(present), to);
    } else if (present == all_tokens && key_dim_ == padded_dim_) {
      // Rows of the plain layout are packed into memory that the next tile uses again.
      const unsigned char* const keys = tiles_.keys(0, head_);
      if (task_.kv.layout == PKV_LAYOUT_PACKED)
        key_blocks_[tile] = keys;
      else
        __builtin_memcpy(to, keys, size_t{key_dim_} * tile_tokens * 2);
    } else {
      copy_keys(static_cast<__mmask16>(present), to);
    }
  }

  void copy_keys(__mmask16 present, unsigned char* to) {
    static constexpr unsigned char nothing[max_dim * tile_tokens * 2] = {};
    const unsigned char* const tile = present != 0 ? tiles_.keys(0, head_) : nothing;
    for (uint32_t d = 0; d < padded_dim_; d += 2)
      _mm512_store_si512(to + size_t{d} * 32,
                         d < key_dim_ ? _mm512_maskz_loadu_epi32(present, tile + size_t{d} * 32)
                                      : _mm512_setzero_si512());
  }

  // Writes the columns of K in parts.
  void cut_keys(__mmask16 present, unsigned char* to) {
    for (uint32_t d = 0; d < padded_dim_; d += 2, to += 64) {
      __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
      if (d < key_dim_) {
        even = _mm512_maskz_load_ps(present, floats_ + d * tile_tokens);
        odd = _mm512_maskz_load_ps(present, floats_ + (d + 1) * tile_tokens);
      }
      put_pairs(even, odd, key_parts_, rounded_keys_, to, k_part());
    }
  }

  // Writes int8 V without its scales, which go to `scales`. Returns the tokens whose scales are not
  // finite; these scales become 0, like those of tokens that are not present.
  TokenMask put_integer_values(TokenMask present, unsigned char* to, float* scales) {
    static_assert(packed_v_index(PKV_INT8, 0, 1, 0) == 2, "tokens of a word: 0, 2, 1, 3");
    _mm512_store_ps(scales, _mm512_setzero_ps());
    if (present == 0) {
      for (uint32_t d = 0; d < value_dim_; d += tile_tokens, to += size_t{strip_tokens_} * 32)
        __builtin_memset(to, 0, tile_tokens * 32);
      return 0;
    }
    const unsigned char* const tile = tiles_.values(0, head_);
    const __m512 x = _mm512_maskz_loadu_ps(static_cast<__mmask16>(present),
                                           tile + size_t{value_dim_} * tile_tokens);
    _mm512_mask_store_ps(scales, finite_lanes(x), x);
    for (uint32_t d = 0; d < value_dim_; d += tile_tokens, to += size_t{strip_tokens_} * 32)
      for (uint32_t t = 0; t < tile_tokens; t += 4) {
        const __m512i words = _mm512_loadu_si512(tile + size_t{t} * value_dim_ + d * 4);
        _mm512_store_si512(to + t * 32, integer_pairs<0, 2>(words));
        _mm512_store_si512(to + t * 32 + 64, integer_pairs<1, 3>(words));
      }
    return _knot_mask16(finite_lanes(x));
  }

  // Copies V that is bf16 already. Returns the tokens with numbers that are not finite; these
  // become 0.
  TokenMask copy_values(TokenMask present, unsigned char* to) {
    const size_t panel_stride = size_t{strip_tokens_} * 32;
    if (copy_bf16_panels(tiles_.values(0, head_), value_dim_, present, to, panel_stride)) return 0;
    TokenMask bad = 0;
    for (uint32_t d = 0; d < value_dim_; d += tile_tokens, to += panel_stride)
      for (uint32_t t = 0; t < tile_tokens; t += 2)
        _mm512_store_si512(to + t * 32, without_infinite(_mm512_load_si512(to + t * 32), t, bad));
    return bad;
  }

  // Replaces numbers that are not finite by 0 and adds their tokens to `bad`. t is the token of the
  // lower half.
  static __m512i without_infinite(__m512i pair, uint32_t t, TokenMask& bad) {
    const __m512i exponents = _mm512_set1_epi16(0x7F80);
    const __mmask32 infinite =
        _mm512_cmpeq_epi16_mask(_mm512_and_si512(pair, exponents), exponents);
    if ((infinite & 0x55555555u) != 0) bad |= 1u << t;
    if ((infinite & 0xAAAAAAAAu) != 0) bad |= 2u << t;
    return _mm512_maskz_mov_epi16(~infinite, pair);
  }

  // Writes V of floats_ in parts. Returns the tokens with numbers that are not finite; these become
  // 0.
  TokenMask cut_values(TokenMask present, unsigned char* to) {
    TokenMask bad = 0;
    for (uint32_t d = 0; d < value_dim_; d += tile_tokens, to += size_t{strip_tokens_} * 32)
      for (uint32_t t = 0; t < tile_tokens; t += 2)
        put_pairs(finite_value(d, t, present, bad), finite_value(d, t + 1, present, bad),
                  value_parts_, rounded_values_ || value_format_ == PKV_Q8_0, to + t * 32,
                  v_part());
    return bad;
  }

  __m512 finite_value(uint32_t d, uint32_t t, TokenMask present, TokenMask& bad) const {
    if ((present >> t & 1) == 0) return _mm512_setzero_ps();
    const __m512 x = _mm512_load_ps(floats_ + (d + t) * tile_tokens);
    const __mmask16 finite = finite_lanes(x);
    if (finite != 0xFFFF) bad |= 1u << t;
    return _mm512_maskz_mov_ps(finite, x);
  }

  void unpack_values(uint32_t tile, TokenMask present) {
    unsigned char* const to = v_ + size_t{tile} * tile_tokens * 32;
    TokenMask bad = 0;
    if (values_have_scales()) {
      bad = put_integer_values(present, to, v_scales_ + tile * tile_tokens);
    } else if (present != 0 && task_.kv.v.dtype == PKV_BF16 && !latent_) {
      bad = copy_values(present, to);
    } else {
      if (present != 0)
        tiles_.unpack_values(0, head_, floats_, tile_tokens, tile_tokens * tile_tokens);
      bad = cut_values(present, to);
    }
    bad_values_[tile] = bad;
    has_bad_values_ |= bad != 0;
  }

  // Returns whether scores and weights are multiplied by the scales of K and V, which the unit does
  // not see.
  bool keys_have_scales() const { return task_.kv.k.dtype == PKV_INT8; }
  bool values_have_scales() const { return task_.kv.v.dtype == PKV_INT8 && !latent_; }

  // ---- A block of rows ----

  // Some tokens of a strip, and the scores of the block's rows.
  struct Segment {
    uint32_t begin, end;
    float* scores;
  };

  void multiply_block_of_rows(uint32_t row, uint32_t n) {
    const uint32_t end = seen_.end_of_rows(row, n);
    if (end <= first_token()) return;
    block_row_ = row, block_size_ = n;
    configure(n);
    Segment next = segment_at(first_token(), end, 0);
    multiply_scores(next, [] {});
    for (unsigned i = 1; next.begin < end; i++) {
      const Segment now = next;
      next = segment_at(now.end, end, i % 2);
      weighed_ = now, weighed_rows_ = 0;
      if (next.begin < end) multiply_scores(next, [&] { weigh_next(); });
      while (weighed_rows_ < block_size_) weigh_next();
      multiply_values(now);
    }
  }

  Segment segment_at(uint32_t begin, uint32_t end, unsigned i) const {
    return {begin, end - begin < segment_tokens ? end : begin + segment_tokens, scores_[i]};
  }

  // Registers 0 and 1 are sums of the first 16 rows, 2 and 3 of the others; 4 and 5 are rows of the
  // left factor, 6 and 7 columns of the right one.
  static void configure(uint32_t rows) {
    const uint8_t top = static_cast<uint8_t>(rows < unit_rows ? rows : unit_rows),
                  bottom = static_cast<uint8_t>(rows - top), bytes = bottom != 0 ? 64 : 0;
    Unit::configure({{top, top, bottom, bottom, top, bottom, 16, 16},
                     {64, 64, bytes, bytes, 64, bytes, 64, 64}});
  }

  template <class Meanwhile>
  void multiply_scores(const Segment& segment, const Meanwhile& meanwhile) {
    const unsigned parts = parts_of_rows(block_row_, block_row_ + block_size_);
    const LeftParts<Unit> queries{q_ + size_t{block_row_} * padded_dim_ * 2, q_part(),
                                  size_t{padded_dim_} * 2};
    const RightParts<Unit> keys{key_blocks_ + segment.begin / tile_tokens, k_part()};
    multiply_blocks<Unit, false>(PartPairs<Unit>(parts, key_parts_, last_product(rounded_keys_)),
                                 queries, keys, block_size_,
                                 (segment.end - segment.begin) / tile_tokens,
                                 padded_dim_ / unit_depth, segment.scores, score_stride, meanwhile);
  }

  // ---- Weights ----

  // Computes the weights of the next row of a segment, unless all have been computed.
  void weigh_next() {
    if (weighed_rows_ == block_size_) return;
    const uint32_t row = weighed_rows_++;
    weight_parts_ == 1 ? weigh<1>(row) : weight_parts_ == 2 ? weigh<2>(row) : weigh<3>(row);
    ahead_.prefetch();
  }

  // Computes weights in parts from the scores of row `r` of the block. The weights of tokens of the
  // segment that the row does not see become 0.
  template <unsigned parts>
  [[gnu::noinline]] void weigh(uint32_t r) {
    const uint32_t row = block_row_ + r, seen_end = seen_.end_of(row);
    uint32_t begin = seen_.first_tile() * tile_tokens, end = weighed_.end;
    if (begin < weighed_.begin) begin = weighed_.begin;
    if (seen_end < end) end = seen_end > begin ? seen_end : begin;
    float* const scores = weighed_.scores + size_t{r} * score_stride;
    unsigned char* const to = weights_ + r * weights_stride;
    const RowState state{out_ + size_t{row} * value_dim_, max_ + row, sums_ + row * tile_tokens};
    const float factor = weights_take_factor(row) ? query_parts_[row].factor : 1.0f;
    const bool ready = (weights_take_factor(row) || keys_have_scales()) &&
                       !transforms(task_.transform) && end <= seen_.sees_up_to(row);
    if (ready && end - begin == segment_tokens &&
        weigh_whole<parts>(row, scores, factor, begin, state, to))
      return;
    clear_weights(to, 0, begin - weighed_.begin);
    clear_weights(to, end - weighed_.begin,
                  (weighed_.end - weighed_.begin + unit_depth - 1) / unit_depth * unit_depth);
    if (begin == end) return;
    raise_max<Isa>(
        Floats<Isa>(_mm512_mul_ps(finish_scores(row, scores, begin, end), _mm512_set1_ps(factor))),
        value_dim_, state);
    put_weights<parts>(scores, factor, begin, end, state, to);
  }

  // The same for a row that sees the whole segment, in vector registers. Returns false if it
  // cannot: a score or a number in V is not finite, or scores are large.
  template <unsigned parts>
  bool weigh_whole(uint32_t row, const float* scores, float factor, uint32_t begin, RowState state,
                   unsigned char* to) {
    if (has_bad_values_ || query_parts_[row].count == 0) return false;
    constexpr uint32_t n = segment_tokens / tile_tokens;
    const __m512 zero = _mm512_setzero_ps();
    __m512 x[n], top = _mm512_set1_ps(-__builtin_inff()), not_finite = zero;
    PKV_UNROLL
    for (uint32_t i = 0; i < n; i++) {
      x[i] = _mm512_load_ps(scores + i * tile_tokens);
      if (keys_have_scales())
        x[i] = _mm512_mul_ps(_mm512_mul_ps(x[i], _mm512_set1_ps(query_parts_[row].factor)),
                             _mm512_load_ps(k_scales_ + begin + i * tile_tokens));
      top = _mm512_max_ps(top, x[i]);
      not_finite = _mm512_fmadd_ps(x[i], zero, not_finite);  // NaN if one is not finite
    }
    if (_mm512_cmp_ps_mask(not_finite, not_finite, _CMP_UNORD_Q) != 0) return false;
    raise_max<Isa>(Floats<Isa>(_mm512_mul_ps(top, _mm512_set1_ps(factor))), value_dim_, state);
    if (subtracts_first(*state.max)) return false;
    const __m512 shift = _mm512_set1_ps(shift_of(*state.max) * log2_e),
                 factors = _mm512_set1_ps(factor * log2_e);
    __m512 sums = _mm512_load_ps(state.sums);
    PKV_UNROLL
    for (uint32_t i = 0; i < n; i++) {
      __m512 weights = power_of_2<parts>(_mm512_fmsub_ps(x[i], factors, shift));
      sums = _mm512_add_ps(sums, weights);
      if (values_have_scales())
        weights = _mm512_mul_ps(weights, _mm512_load_ps(v_scales_ + begin + i * tile_tokens));
      put_weight_parts<parts>(weights, to + i * tile_tokens * 2);
    }
    _mm512_store_ps(state.sums, sums);
    return true;
  }

  // Writes weights in parts. The last one is rounded.
  template <unsigned parts>
  static void put_weight_parts(__m512 weights, unsigned char* to) {
    put_parts(weights, parts - 1, parts == 2, to, weights_part());
    _mm256_store_si256(reinterpret_cast<__m256i*>(to + (parts - 1) * weights_part()),
                       Unit::round(weights));
  }

  static constexpr float log2_e = 1.44269504f;

  // 2^x for x <= 0; NaN for NaN; exactly 1 for 0. For weights of one or two parts it is within
  // 2^-18: with r = x - floor(x) the result is 2^floor(x) p(r), where p is the minimax polynomial
  // of degree 4 on 0 to 1 whose first coefficient is 1.
  template <unsigned parts>
  static __m512 power_of_2(__m512 x) {
    if constexpr (parts == max_parts) return Isa::power_of_2(Floats<Isa>(x));
    const __m512 r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    __m512 p = _mm512_set1_ps(0x1.b7f732p-7f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.abf868p-5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.ee2450p-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.62d6c6p-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, x);
  }

  // Returns whether the factor of a row's scores is applied within the exponentials. Neither this
  // nor the row's bits depend on the rows beside it.
  bool weights_take_factor(uint32_t row) const {
    return query_parts_[row].factor > 0 && !keys_have_scales() && !transforms(task_.transform);
  }

  // Returns whether the maximum is subtracted from scores before they are multiplied by log2 e. If
  // scores are large, the product of the maximum is rounded by so much that weights could overflow.
  static bool subtracts_first(float max) { return __builtin_fabsf(shift_of(max)) > 0x1p16f; }

  void clear_weights(unsigned char* to, uint32_t begin, uint32_t end) {
    for (uint32_t t = begin; t < end; t += tile_tokens)
      for (unsigned part = 0; part < weight_parts_; part++)
        _mm256_store_si256(reinterpret_cast<__m256i*>(to + t * 2 + part * weights_part()),
                           _mm256_setzero_si256());
  }

  // Writes the weights of scores, which are still to be multiplied by a factor, in parts. If V has
  // numbers that the unit cannot multiply, the weights also replace the scores.
  template <unsigned parts>
  [[gnu::noinline]] void put_weights(float* scores, float factor, uint32_t begin, uint32_t end,
                                     RowState state, unsigned char* to) {
    const bool scaled = values_have_scales(), keeps = has_bad_values_;
    const __m512 shift = _mm512_set1_ps(shift_of(*state.max) * log2_e),
                 factors = _mm512_set1_ps(factor * log2_e);
    const bool large = subtracts_first(*state.max);
    __m512 sums = _mm512_load_ps(state.sums);
    for (uint32_t t = begin - weighed_.begin; t < end - weighed_.begin; t += tile_tokens) {
      __m512 x = _mm512_load_ps(scores + t);
      if (large)
        x = _mm512_mul_ps(_mm512_sub_ps(_mm512_mul_ps(x, _mm512_set1_ps(factor)),
                                        _mm512_set1_ps(shift_of(*state.max))),
                          _mm512_set1_ps(log2_e));
      else
        x = _mm512_fmsub_ps(x, factors, shift);
      x = power_of_2<parts>(x);
      if (keeps) _mm512_store_ps(scores + t, x);
      sums = _mm512_add_ps(sums, x);
      if (scaled) x = _mm512_mul_ps(x, _mm512_load_ps(v_scales_ + weighed_.begin + t));
      put_weight_parts<parts>(x, to + t * 2);
    }
    _mm512_store_ps(state.sums, sums);
  }

  // Recomputes the scores that the unit could not compute, scales the products of a row unless the
  // weights apply the factor, transforms them, and hides tokens that the row does not see. Returns
  // the maximum per lane.
  [[gnu::noinline]] __m512 finish_scores(uint32_t row, float* scores, uint32_t begin,
                                         uint32_t end) {
    const __m512 factor = _mm512_set1_ps(query_parts_[row].factor);
    const bool scaled = keys_have_scales(), transformed = transforms(task_.transform),
               finite = query_parts_[row].count != 0, late = weights_take_factor(row);
    __m512 top = _mm512_set1_ps(-__builtin_inff());
    for (uint32_t token = begin; token < end; token += tile_tokens) {
      const uint32_t tile = token / tile_tokens;
      float* const at = scores + (token - weighed_.begin);
      __m512 x = _mm512_load_ps(at);
      if (!late) x = _mm512_mul_ps(x, factor);
      if (scaled) x = _mm512_mul_ps(x, _mm512_load_ps(k_scales_ + token));
      const __mmask16 not_by_unit = finite ? _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q) : 0xFFFF;
      if (not_by_unit != 0) [[unlikely]] {
        const __m512 score = multiplied_floats(row, tile);
        x = _mm512_mask_mov_ps(x, not_by_unit, late ? _mm512_div_ps(score, factor) : score);
      }
      _mm512_store_ps(at, x);
      const bool hides = token + tile_tokens > seen_.sees_up_to(row);
      if (transformed || hides) {
        if (transformed) transform(row, tile, at);
        if (hides) hide_unseen<Isa>(seen_.seen_by_row(row, tile), at);
        x = _mm512_load_ps(at);
      }
      top = _mm512_max_ps(top, x);
    }
    return top;
  }

  void transform(uint32_t row, uint32_t tile, float* scores) const {
    const uint32_t query_head = head_ * task_.heads_per_kv_head + row % task_.heads_per_kv_head;
    transform_scores<Isa>(task_.transform, query_head, task_.query[seen_.query_of(row)],
                          seen_.position_of(tile), scores);
  }

  // Computes the scores of a row and a tile without the unit, because an infinity has no parts.
  [[gnu::noinline]] __m512 multiplied_floats(uint32_t row, uint32_t tile) {
    const TokenMask present = seen_.present(tile);
    if (present == 0) return _mm512_setzero_ps();
    tiles_.put(0, seen_.position_of(tile), present);
    tiles_.k().stored->unpack_k(tiles_.keys(0, head_), key_dim_, floats_);
    const float* const keys[2] = {floats_, floats_};
    const size_t first = size_t{head_ - task_.head_begin} * rows_;
    alignas(64) ScoreRow scores;
    multiply_tile<Isa, 1, 1, 0, 1>(task_.q + (first + row) * key_dim_, keys, key_dim_, false,
                                   scores, 0);
    return _mm512_load_ps(scores);
  }

  void multiply_values(const Segment& segment) {
    const unsigned char* panels[max_dim / tile_tokens];
    for (uint32_t i = 0; i < value_dim_ / tile_tokens; i++)
      panels[i] = v_ + (size_t{i} * strip_tokens_ + segment.begin) * 32;
    multiply_blocks<Unit, true>(
        PartPairs<Unit>(weight_parts_, value_parts_, last_product(rounded_values_)),
        {weights_, weights_part(), weights_stride}, {panels, v_part()}, block_size_,
        value_dim_ / tile_tokens, (segment.end - segment.begin + unit_depth - 1) / unit_depth,
        out_ + size_t{block_row_} * value_dim_, value_dim_, [] {});
    for (uint32_t tile = segment.begin / tile_tokens;
         has_bad_values_ && tile < segment.end / tile_tokens; tile++)
      if (bad_values_[tile] != 0) add_bad_values(segment, tile);
  }

  // Adds the numbers in V of a tile that are not finite. 0 times such a number is NaN, which must
  // not reach rows that do not see it.
  [[gnu::noinline]] void add_bad_values(const Segment& segment, uint32_t tile) {
    tiles_.put(0, seen_.position_of(tile), seen_.present(tile));
    tiles_.unpack_values(0, head_, floats_, tile_tokens, tile_tokens * tile_tokens);
    for (uint32_t i = 0; i < value_dim_ * tile_tokens; i += tile_tokens) {
      const __m512 x = _mm512_load_ps(floats_ + i);
      _mm512_store_ps(floats_ + i, _mm512_maskz_mov_ps(_knot_mask16(finite_lanes(x)), x));
    }
    for (uint32_t r = 0; r < block_size_; r++)
      if (tile * tile_tokens < seen_.end_of(block_row_ + r))
        add_seen<Isa>(
            floats_, tile_tokens, tile_tokens * tile_tokens,
            seen_.seen_by_row(block_row_ + r, tile) & bad_values_[tile],
            segment.scores + size_t{r} * score_stride + tile * tile_tokens - segment.begin,
            value_dim_, out_ + size_t{block_row_ + r} * value_dim_);
  }

  const AttendTask& task_;
  const uint32_t rows_, key_dim_, value_dim_;
  const uint32_t padded_dim_;  // of K, a multiple of unit_depth
  const bool latent_;
  const pkv_dtype key_format_, value_format_;  // in memory
  const unsigned key_parts_, value_parts_, weight_parts_;
  const bool rounded_keys_, rounded_values_;  // the product of two second parts is left out
  const uint32_t strip_tokens_;               // tokens whose K and V are in parts at a time
  TileReader<Isa> tiles_;
  unsigned char* const q_;        // [part][row][padded dim]
  unsigned char* const k_;        // [part][tile][pair of dims][16 tokens][2], unless K is stored so
  unsigned char* const v_;        // [part][16 dims][pair of tokens][16][2]
  unsigned char* const weights_;  // of a segment: [part][row of the block][token]
  float* const scores_[2];        // of two segments: [row of the block][token]
  float* const k_scales_;         // of int8, by token
  float* const v_scales_;
  float* const floats_;  // K or V of a tile
  float* const sums_;
  QueryParts* const query_parts_;           // by row
  const unsigned char** const key_blocks_;  // by tile: the first part of its K
  TokenMask* const bad_values_;  // by tile: tokens whose V is not finite; the unit uses 0
  TilesAhead<Isa> ahead_;
  SeenRows<Isa> seen_;
  bool has_bad_values_ = false;  // in the strip
  uint32_t block_row_ = 0, block_size_ = 0;
  Segment weighed_{};          // whose scores become weights
  uint32_t weighed_rows_ = 0;  // that have weights
  uint32_t head_ = 0;
  float* out_ = nullptr;
  float* max_ = nullptr;
  float* sum_ = nullptr;
};

static inline bool takes_matrices(const AttendTask& task) {
  return uint64_t{task.queries} * task.heads_per_kv_head >= min_matmul_rows;
}

template <class Isa, class Unit>
void attend_by_unit(const AttendTask& task, const SetOps& ops) {
  Scratch scratch(task.scratch);
  if (takes_matrices(task))
    AttendMatrixUnit<Isa, Unit>(task, ops, scratch).run();
  else if (multiplies_few_rows(task))
    AttendFewRows<Isa, Unit>(task, few_rows_ops<Isa, Unit>, scratch).run();
  else
    avx512_drivers.attend(task, ops);
}

template <class Isa, class Unit>
size_t unit_scratch_bytes(const AttendTask& task, const SetOps& ops) {
  Scratch scratch(nullptr);
  if (takes_matrices(task))
    AttendMatrixUnit<Isa, Unit>(task, ops, scratch);
  else if (multiplies_few_rows(task))
    AttendFewRows<Isa, Unit>(task, few_rows_ops<Isa, Unit>, scratch);
  else
    return avx512_drivers.attend_scratch_bytes(task, ops);
  return scratch.used();
}

template <class Isa, class Unit, const SetOps& ops>
constexpr Table make_unit_table(pkv_isa isa) {
  Table table = make_table<Isa, avx512_drivers, ops>(isa);
  table.attend = [](const AttendTask& task) { attend_by_unit<Isa, Unit>(task, ops); };
  table.attend_scratch_bytes = [](const AttendTask& task) {
    return unit_scratch_bytes<Isa, Unit>(task, ops);
  };
  return table;
}

}  // namespace pkv::kernels
