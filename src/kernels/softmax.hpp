// The online softmax: a row's scores of a tile become weights exp(score - max), and the row's sums
// so far are scaled down to the new maximum (Milakov and Gimelshein 2018).
#pragma once

#include "kernels/keys.hpp"
#include "kernels/tokens.h"

namespace pkv::kernels {

// e^x for x <= 0, within 4 units in the last place: 0 below -87.3, where the result would not be
// normal; NaN for NaN; exactly 1 for 0. With x = n ln 2 + r the result is 2^n p(r), where p is the
// minimax polynomial of degree 6 on |r| <= ln 2 / 2 whose first two coefficients are 1.
template <class Isa>
Floats<Isa> exp_of_negative(Floats<Isa> x) {
  using F = Floats<Isa>;
  using I = Ints<Isa>;
  // Adding the magic number leaves n in the low bits, as a biased exponent. If that is out of
  // range, the result is not used.
  const F magic(0x1.8p23f + 127);
  const F shifted = Isa::fma(x, F(1.44269504f), magic);
  const F r = Isa::fma(shifted - magic, F(-0.693147182f), x);
  F p(0x1.6ab926p-10f);
  p = Isa::fma(p, r, F(0x1.126d64p-7f));
  p = Isa::fma(p, r, F(0x1.55589cp-5f));
  p = Isa::fma(p, r, F(0x1.55540ap-3f));
  p = Isa::fma(p, r, F(0x1.fffffap-2f));
  p = Isa::fma(p, r, F(1.0f));
  p = Isa::fma(p, r, F(1.0f));
  const F power = same_bits<F>(same_bits<I>(shifted) << 23);
  return xsimd::select(x < F(-87.3f), F(0.0f), p * power);
}

// The weight e^x of a score whose difference to the maximum is x <= 0. Instruction sets with a fast
// power of 2 add an error of |x| units in the last place of the result, which is at most half a
// unit of the largest weight.
template <class Isa>
Floats<Isa> weight_of(Floats<Isa> x) {
  if constexpr (requires { Isa::power_of_2(x); })
    return Isa::power_of_2(x * Floats<Isa>(1.44269504f));
  else
    return exp_of_negative<Isa>(x);
}

template <class Isa>
float exp_of_negative(float x) {
  alignas(64) float lanes[Floats<Isa>::size];
  exp_of_negative<Isa>(Floats<Isa>(x)).store_aligned(lanes);
  return lanes[0];
}

// Vector number `vector` of the numbers 0 to 15 of a tile's tokens.
template <class Isa>
Floats<Isa> token_numbers(unsigned vector) {
  alignas(64) static constexpr float numbers[tile_tokens] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                             8, 9, 10, 11, 12, 13, 14, 15};
  return Floats<Isa>::load_aligned(numbers + vector * Floats<Isa>::size);
}

// softcap * tanh(x / softcap), by tanh y = sign(y) (1 - e) / (1 + e) with e = exp(-2 |y|).
template <class Isa>
Floats<Isa> capped(Floats<Isa> x, float softcap) {
  using F = Floats<Isa>;
  const F e = exp_of_negative<Isa>(xsimd::abs(x) * F(-2.0f / softcap));
  const F tanh = (F(1.0f) - e) / (F(1.0f) + e) * F(softcap);
  const Ints<Isa> sign = same_bits<Ints<Isa>>(x) & Ints<Isa>(static_cast<int32_t>(0x80000000u));
  return same_bits<F>(same_bits<Ints<Isa>>(tanh) | sign);
}

// Caps the scores of the 16 tokens from position `tile` on, and adds the ALiBi term: slope times
// distance.
template <class Isa>
void cap_and_slope(const ScoreTransform& transform, uint32_t query_head, uint64_t position,
                   uint64_t tile, float* scores) {
  using F = Floats<Isa>;
  const float slope = transform.alibi_slopes != nullptr ? transform.alibi_slopes[query_head] : 0.0f;
  const float distance =
      static_cast<float>(static_cast<int64_t>(tile) - static_cast<int64_t>(position));
  const bool shifted = transform.key_shifts != nullptr && tile >= transform.shifts_begin;
  const float* const shifts =
      shifted ? transform.key_shifts + (tile - transform.shifts_begin) : nullptr;
  for (unsigned n = 0; n < vectors_per_tile<Isa>; n++) {
    F x = F::load_aligned(scores + n * F::size);
    if (transform.softcap != 0) x = capped<Isa>(x, transform.softcap);
    if (transform.alibi_slopes != nullptr) {
      F distances = F(distance) + token_numbers<Isa>(n);
      if (shifts != nullptr) distances += F::load_unaligned(shifts + n * F::size);
      x = Isa::fma(F(slope), distances, x);
    }
    x.store_aligned(scores + n * F::size);
  }
}

// Adds factor * bias to the scores of the 16 tokens from position `tile` on. Tokens that have no
// bias are before mask_begin, or are not seen.
template <class Isa, pkv_dtype dtype>
void add_bias(float factor, const QueryView& query, uint64_t tile, float* scores) {
  using F = Floats<Isa>;
  constexpr uint32_t bytes = Elements<Isa, dtype>::bytes;
  const unsigned char* from = nullptr;
  unsigned char edge[tile_tokens * bytes];
  if (tile >= query.mask_begin && tile + tile_tokens <= query.end) {
    from = query.bias + (tile - query.mask_begin) * bytes;
  } else {
    from = edge;
    __builtin_memset(edge, 0, sizeof edge);
    for (uint32_t t = 0; t < tile_tokens; t++)
      if (tile + t >= query.mask_begin && tile + t < query.end)
        __builtin_memcpy(edge + t * bytes, query.bias + (tile + t - query.mask_begin) * bytes,
                         bytes);
  }
  for (uint32_t t = 0; t < tile_tokens; t += F::size)
    Isa::fma(F(factor), Elements<Isa, dtype>::load(from + t * bytes), F::load_aligned(scores + t))
        .store_aligned(scores + t);
}

// Applies softcap, ALiBi and the bias to the scores of the 16 tokens from position `tile` on.
template <class Isa>
void transform_scores(const ScoreTransform& transform, uint32_t query_head, const QueryView& query,
                      uint64_t tile, float* scores) {
  if (transform.softcap != 0 || transform.alibi_slopes != nullptr)
    cap_and_slope<Isa>(transform, query_head, query.position, tile, scores);
  if (query.bias == nullptr) return;
  const float factor =
      transform.bias_factors != nullptr ? transform.bias_factors[query_head] : 1.0f;
  if (transform.bias_dtype == PKV_F16)
    add_bias<Isa, PKV_F16>(factor, query, tile, scores);
  else
    add_bias<Isa, PKV_F32>(factor, query, tile, scores);
}

static inline bool transforms(const ScoreTransform& transform) {
  return transform.softcap != 0 || transform.alibi_slopes != nullptr || transform.biased;
}

// Sets the scores of tokens that are not seen to -infinity, because their slots may have any value.
template <class Isa>
void hide_unseen(TokenMask seen, float* scores) {
  for (uint32_t t = 0; t < tile_tokens; t++)
    if ((seen >> t & 1) == 0) scores[t] = -__builtin_inff();
}

// The results of a row over the tiles so far. Those of the next rows follow in memory.
struct RowState {
  float* out;
  float* max;
  float* sums;  // 16 sums of weights, one for each token of a tile
};

// Scales the results of a row down to a new maximum. This is rarely needed after the first tiles.
template <class Isa>
[[gnu::noinline]] void lower_to(float max, float* out, float* row_max, float* sums,
                                uint32_t value_dim) {
  using F = Floats<Isa>;
  const F keep(exp_of_negative<Isa>(*row_max - max));
  for (uint32_t d = 0; d < value_dim; d += F::size)
    (F::load_unaligned(out + d) * keep).store_unaligned(out + d);
  for (uint32_t t = 0; t < tile_tokens; t += F::size)
    (F::load_aligned(sums + t) * keep).store_aligned(sums + t);
  *row_max = max;
}

// Replaces the scores of some rows and tiles by weights; those of row r and tile i are at scores[i
// * rows + r]. Prefetches the first lines at next[i], where V of the tile after tile i begins, so
// that memory is read while exponentials are computed.
template <class Isa, unsigned rows, unsigned tiles>
void absorb(ScoreRow* scores, RowState first, uint32_t value_dim, TilePointers next) {
  using F = Floats<Isa>;
  constexpr unsigned vectors = vectors_per_tile<Isa>;
  PKV_UNROLL
  for (unsigned r = 0; r < rows; r++) {
    F top = F::load_aligned(scores[r]);
    for (unsigned i = 0; i < tiles; i++)
      for (unsigned n = i == 0 ? 1 : 0; n < vectors; n++)
        top = xsimd::max(top, F::load_aligned(scores[i * rows + r] + n * F::size));
    // The maximum across lanes is needed only if a score is larger than the maximum so far.
    if (xsimd::any(top > F(first.max[r]))) [[unlikely]] {
      const float max = Isa::max_of(xsimd::max(F(first.max[r]), top));
      lower_to<Isa>(max, first.out + r * value_dim, first.max + r, first.sums + r * tile_tokens,
                    value_dim);
    }
  }
  // This is a separate loop, so that the exponentials of all rows and tiles overlap.
  PKV_UNROLL
  for (unsigned r = 0; r < rows; r++) {
    const F shift(shift_of(first.max[r]));
    float* const sums = first.sums + r * tile_tokens;
    PKV_UNROLL
    for (unsigned i = 0; i < tiles; i++) {
      if constexpr (!PrefetchesNear<Isa>) prefetch_lines<Isa, rows>(next[i] + r * 256, 256);
      for (unsigned n = 0; n < vectors; n++) {
        float* const score = scores[i * rows + r] + n * F::size;
        const F weight = weight_of<Isa>(F::load_aligned(score) - shift);
        weight.store_aligned(score);
        (F::load_aligned(sums + n * F::size) + weight).store_aligned(sums + n * F::size);
      }
    }
  }
}

// Sets the maximum of a row to the largest lane of `top`, if that is larger.
template <class Isa>
void raise_max(Floats<Isa> top, uint32_t value_dim, RowState row) {
  using F = Floats<Isa>;
  if (!xsimd::any(top > F(*row.max))) return;
  const float max = Isa::max_of(xsimd::max(F(*row.max), top));
  lower_to<Isa>(max, row.out, row.max, row.sums, value_dim);
}

// The same as absorb_row(), for 8 vectors of 16 scores, which stay in registers.
template <class Isa, class Put>
void absorb_whole_row(const float* scores, uint32_t value_dim, RowState row, const Put& put) {
  using F = Floats<Isa>;
  F score[8];
  PKV_UNROLL
  for (unsigned i = 0; i < 8; i++) score[i] = F::load_aligned(scores + i * F::size);
  F top[4];
  PKV_UNROLL
  for (unsigned i = 0; i < 4; i++) top[i] = xsimd::max(score[i], score[i + 4]);
  raise_max<Isa>(xsimd::max(xsimd::max(top[0], top[1]), xsimd::max(top[2], top[3])), value_dim,
                 row);
  const F shift(shift_of(*row.max));
  F total = F::load_aligned(row.sums);
  PKV_UNROLL
  for (unsigned i = 0; i < 8; i++) {
    const F weight = weight_of<Isa>(score[i] - shift);
    put(weight, i * static_cast<uint32_t>(F::size));
    total += weight;
  }
  total.store_aligned(row.sums);
}

// Calls put(weight, i) with the weights of n scores of one row, of which vector `weight` begins at
// i; n is a multiple of 16.
template <class Isa, class Put>
void absorb_row(const float* scores, uint32_t n, uint32_t value_dim, RowState row, const Put& put) {
  using F = Floats<Isa>;
  if constexpr (F::size == tile_tokens)
    if (n == 8 * F::size) return absorb_whole_row<Isa>(scores, value_dim, row, put);
  F top = F::load_aligned(scores);
  for (uint32_t i = F::size; i < n; i += F::size)
    top = xsimd::max(top, F::load_aligned(scores + i));
  raise_max<Isa>(top, value_dim, row);
  const F shift(shift_of(*row.max));
  F total[vectors_per_tile<Isa>];
  for (unsigned v = 0; v < vectors_per_tile<Isa>; v++)
    total[v] = F::load_aligned(row.sums + v * F::size);
  for (uint32_t i = 0; i < n; i += tile_tokens) {
    for (unsigned v = 0; v < vectors_per_tile<Isa>; v++) {
      const uint32_t at = i + v * static_cast<uint32_t>(F::size);
      const F weight = weight_of<Isa>(F::load_aligned(scores + at) - shift);
      put(weight, at);
      total[v] += weight;
    }
  }
  for (unsigned v = 0; v < vectors_per_tile<Isa>; v++)
    total[v].store_aligned(row.sums + v * F::size);
}

// Replaces n scores of one row by weights, and those behind them by 0, up to `end`.
template <class Isa>
void absorb_row(float* scores, uint32_t n, uint32_t end, uint32_t value_dim, RowState row) {
  if (n != 0)
    absorb_row<Isa>(scores, n, value_dim, row,
                    [=](Floats<Isa> weight, uint32_t i) { weight.store_aligned(scores + i); });
  for (uint32_t i = n; i < end; i++) scores[i] = 0;
}

// The sum of RowState::sums.
template <class Isa>
float total_of(const float* sums) {
  Floats<Isa> total = Floats<Isa>::load_aligned(sums);
  for (unsigned n = 1; n < vectors_per_tile<Isa>; n++)
    total += Floats<Isa>::load_aligned(sums + n * Floats<Isa>::size);
  return Isa::sum_of(total);
}

}  // namespace pkv::kernels
