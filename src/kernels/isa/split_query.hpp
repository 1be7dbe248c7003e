// Scores by an instruction that multiplies bf16 numbers, so that K needs no conversion to fp32.
//
// A query row is prepared once per task. If it is whole, which means the scale times a row of bf16
// numbers, these are multiplied and the scores scaled. Otherwise each dim is split into two bf16,
// with q = high + low within 2^-16. The instruction treats denormals as 0, so infinity times a
// denormal would become NaN; therefore a row that is not finite is multiplied as fp32.
#pragma once

#include "kernels/keys.hpp"

namespace pkv::kernels {

// A prepared query row.
struct SplitQuery {
  float factor;  // scores are multiplied by it
  enum : uint32_t { split, whole, floats } kind;
  // After the struct there are dim / 2 words of pairs of the high numbers, then as many of the low
  // numbers. A whole row only has high numbers; with `floats` there is the row in fp32 instead.
  uint32_t* words() { return reinterpret_cast<uint32_t*>(this + 1); }
  const uint32_t* words() const { return reinterpret_cast<const uint32_t*>(this + 1); }
  static constexpr size_t bytes(uint32_t dim) { return sizeof(SplitQuery) + size_t{dim} * 4; }
  static const SplitQuery& row(const void* rows, unsigned r, uint32_t dim) {
    return *reinterpret_cast<const SplitQuery*>(static_cast<const unsigned char*>(rows) +
                                                r * bytes(dim));
  }
};

// Multiply::scores<rows, with_low>(q, dim, tile, next, scores) multiplies rows of which none is
// `floats`, without the low numbers if all are whole. The sums of the high numbers are the same
// with and without low ones: a row's scores do not depend on the rows beside it.
template <class Isa, class Multiply, pkv_dtype dtype = PKV_BF16>
struct SplitQueryKeyTile : FloatKeyTile<Isa, dtype> {
  static size_t query_bytes(uint32_t dim) { return SplitQuery::bytes(dim); }

  static void prepare(const float* row, uint32_t dim, float scale, void* to) {
    SplitQuery* const query = static_cast<SplitQuery*>(to);
    uint32_t* const words = query->words();
    query->kind = is_whole(row, dim, scale) ? SplitQuery::whole
                  : is_finite(row, dim)     ? SplitQuery::split
                                            : SplitQuery::floats;
    query->factor = query->kind == SplitQuery::whole ? scale : 1.0f;
    if (query->kind == SplitQuery::floats) {
      __builtin_memcpy(words, row, size_t{dim} * 4);
      return;
    }
    for (uint32_t d = 0; d < dim; d += F::size) {
      F q = F::load_unaligned(row + d);
      if (query->kind == SplitQuery::whole) q = unscaled(q, scale);
      const F high = high_part(q);
      store_pairs(words + d / 2, same_bits<U>(high));
      store_pairs(words + (dim + d) / 2, nearest_bf16_bits<Isa>(low_part(q, high)));
    }
  }

  template <unsigned rows, unsigned tiles>
  static void scores(const void* q, uint32_t dim, TilePointers at, TilePointers next,
                     ScoreRow* scores) {
    static_assert(tiles == 1);
    bool whole = true, finite = true;
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) {
      whole &= SplitQuery::row(q, r, dim).kind == SplitQuery::whole;
      finite &= SplitQuery::row(q, r, dim).kind != SplitQuery::floats;
    }
    if (whole)
      Multiply::template scores<rows, false>(q, dim, *at, *next, scores);
    else if (finite) [[likely]]
      Multiply::template scores<rows, true>(q, dim, *at, *next, scores);
    else
      multiply_one_by_one<rows>(q, dim, at, next, scores);
  }

  // True if the row is finite and bf16 times the scale, without denormals, which the dot product
  // treats as 0.
  static bool is_whole(const float* row, uint32_t dim, float scale) {
    for (uint32_t d = 0; d < dim; d += F::size) {
      const F q = F::load_unaligned(row + d), b = unscaled(q, scale), size = xsimd::abs(b);
      const auto normal = size >= F(min_normal) && size < F(__builtin_inff());
      if (!xsimd::all(b * F(scale) == q && (normal || b == F(0.0f)))) return false;
    }
    return true;
  }

  // Writes such a row as dim / 2 words of pairs of bf16.
  static void put_whole(const float* row, uint32_t dim, float scale, uint32_t* words) {
    for (uint32_t d = 0; d < dim; d += F::size)
      store_pairs(words + d / 2, same_bits<U>(unscaled(F::load_unaligned(row + d), scale)));
  }

 private:
  using F = Floats<Isa>;
  using U = Words<Isa>;
  static constexpr float min_normal = 0x1p-126f;

  static bool is_finite(const float* row, uint32_t dim) {
    for (uint32_t d = 0; d < dim; d += F::size)
      if (!xsimd::all(xsimd::abs(F::load_unaligned(row + d)) < F(__builtin_inff()))) return false;
    return true;
  }

  template <unsigned rows>
  static void multiply_one_by_one(const void* q, uint32_t dim, TilePointers at, TilePointers next,
                                  ScoreRow* scores) {
    for (unsigned r = 0; r < rows; r++) {
      const SplitQuery& query = SplitQuery::row(q, r, dim);
      if (query.kind == SplitQuery::floats)
        FloatKeyTile<Isa, dtype>::template scores<1, 1>(query.words(), dim, at, next, scores + r);
      else
        SplitQueryKeyTile::template scores<1, 1>(&query, dim, at, next, scores + r);
    }
  }

  // Returns the bf16 number that, times the scale, may be x.
  static F unscaled(F x, float scale) {
    return upper_bf16<Isa>(nearest_bf16_bits<Isa>(x / F(scale)));
  }

  // Returns the smallest normal number, with the sign of x.
  static F min_normal_like(F x) {
    return as_floats<Isa>((same_bits<U>(x) & U(0x80000000u)) | U(0x00800000u));
  }

  // Returns the upper half of q. For a denormal it is the smallest normal number instead, because
  // the instruction would treat the denormal as 0.
  static F high_part(F q) {
    const auto denormal = xsimd::abs(q) < F(min_normal) && q != F(0.0f);
    return upper_bf16<Isa>(same_bits<U>(xsimd::select(denormal, min_normal_like(q), q)));
  }

  // Returns q - high, but the smallest normal number instead of 0, unless q is 0: with an infinite
  // K, 0 would give NaN, but q gives infinity. The smallest normal number changes no finite score.
  static F low_part(F q, F high) {
    const F rest = q - high;
    const F low = xsimd::select(xsimd::abs(rest) < F(min_normal), min_normal_like(q), rest);
    return xsimd::select(q == F(0.0f), q, low);
  }

  // Stores the upper halves of words as pairs.
  static void store_pairs(uint32_t* to, U words) { Isa::narrow(to, words >> 16); }
};

}  // namespace pkv::kernels
