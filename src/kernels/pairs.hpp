// K and V of a strip as matrices of pairs of 16-bit numbers, for instruction sets that multiply
// such pairs and add up the two products: twice as many products per instruction as in fp32. A word
// has two dims of K, or two tokens of V. The functions depend on the dtype; the numbers are bf16
// (isa/avx512_bf16.hpp, isa/neon_bf16.hpp) or integers (integer_pairs.hpp).
#pragma once

#include "kernels/integer_values.hpp"
#include "kernels/softmax.hpp"
#include "kernels/tokens.h"

namespace pkv::kernels {

// The distance in floats from one row of scores to the next. It is a constant, so that one register
// addresses all rows of a register tile. At most this many tokens are multiplied at a time.
inline constexpr uint32_t score_stride = 128;
// The same in words for rows of queries in pairs.
inline constexpr uint32_t pair_stride = max_dim / 2;

// Functions for 1 to matmul_rows rows: those of AttendMatmul's register tiles.
struct KeyPairOps {
  size_t column_bytes;  // from one column of K to the next
  size_t (*tile_bytes)(uint32_t dim);
  // Writes a row of queries in pairs, unless it cannot be one. Returns whether it was written.
  // Its scores are to be multiplied by the unit.
  bool (*put_query)(const float* q, uint32_t dim, float scale, uint32_t* to, float* unit);
  // Writes the pairs of a tile. NULL if a packed tile is stored as they are.
  void (*copy)(const unsigned char* tile, uint32_t dim, unsigned char* to);
  // Computes the scores of some rows, for 1 or 2 vectors of columns.
  void (*multiply[4])(unsigned vectors, const uint32_t* q, const float* units, TilePointers b,
                      uint32_t dim, float* scores);
};

struct ValuePairOps {
  size_t column_bytes;
  // True if copy() writes numbers that are not finite as 0.
  bool skip_not_finite;
  // The number of scales of each token that are kept beside the pairs, [scale][token of the strip],
  // and the one that multiply() takes for dim d.
  uint32_t (*scales)(uint32_t dim);
  uint32_t (*scale_of)(uint32_t d);
  // Writes the pairs of a tile, in panels that are strip_tokens * 32 bytes apart, and its scales.
  // If no token is present, the tile is not read. Returns false if a number is not finite.
  bool (*copy)(const unsigned char* tile, uint32_t dim, TokenMask present, uint32_t strip_tokens,
               unsigned char* to, float* scales);
  // Replaces n scores of a row by weights in pairs, and those behind them by 0, up to `end`.
  // Returns the unit of the weights.
  float (*absorb)(float* scores, uint32_t n, uint32_t end, const float* scales, uint32_t dim,
                  RowState row);
  // Adds the products of n weights of some rows to their outputs, whose rows are `dim` floats
  // apart.
  void (*multiply[4])(unsigned vectors, const float* weights, const float* units, TilePointers b,
                      const float* scales, uint32_t n, float* out, uint32_t dim);
};

// Specialisations have functions of these names; the last one is multiply<rows>().
template <class Isa, pkv_dtype dtype>
struct KeyPairs {};
template <class Isa, pkv_dtype dtype>
struct ValuePairs {};

template <class Isa, pkv_dtype dtype, class P = KeyPairs<Isa, dtype>>
constexpr KeyPairOps key_pair_ops = {
    P::column_bytes,
    P::tile_bytes,
    P::put_query,
    P::copy,
    {P::template multiply<Isa::matmul_rows>, P::template multiply<4>, P::template multiply<2>,
     P::template multiply<1>}};

template <class Isa, pkv_dtype dtype, class P = ValuePairs<Isa, dtype>>
constexpr ValuePairOps value_pair_ops = {
    P::column_bytes,
    P::skip_not_finite,
    P::scales,
    P::scale_of,
    P::copy,
    P::absorb,
    {P::template multiply<Isa::matmul_rows>, P::template multiply<4>, P::template multiply<2>,
     P::template multiply<1>}};

// NULL if an instruction set has no pairs for a dtype.
template <class Isa, pkv_dtype dtype>
constexpr const KeyPairOps* key_pairs_of() {
  if constexpr (requires { KeyPairs<Isa, dtype>::column_bytes; })
    return &key_pair_ops<Isa, dtype>;
  else
    return nullptr;
}
template <class Isa, pkv_dtype dtype>
constexpr const ValuePairOps* value_pairs_of() {
  if constexpr (requires { ValuePairs<Isa, dtype>::column_bytes; })
    return &value_pair_ops<Isa, dtype>;
  else
    return nullptr;
}

}  // namespace pkv::kernels
