// Matrix products of fp32, in register tiles of some rows times two vectors of columns (Goto and
// van de Geijn 2008). The left factor may be packed: then numbers of the rows of a register tile
// lie side by side, [depth][rows], and are read in the order of memory.
#pragma once

#include "kernels/vectors.hpp"
#include "kernels/views.h"

namespace pkv::kernels {

// c[r][j] = (add ? c[r][j] : 0) + the sum over k < depth of a(r, k) * b(k, j), for `rows` rows and
// `vectors` vectors of columns. a(r, k) is at a + r * row_stride + k * depth_stride, vector n of
// row k of b at b[n] + k * 16. Rows of c are c_stride floats apart.
template <class Isa, unsigned rows, unsigned vectors, uint32_t row_stride, uint32_t depth_stride>
void multiply_tile(const float* a, const float* const* b, size_t depth, bool add, float* c,
                   size_t c_stride) {
  using F = Floats<Isa>;
  F sum[rows][vectors];
  PKV_UNROLL
  for (unsigned r = 0; r < rows; r++) {
    PKV_UNROLL
    for (unsigned n = 0; n < vectors; n++)
      sum[r][n] = add ? F::load_unaligned(c + r * c_stride + n * F::size) : F(0.0f);
  }
  const float* b0 = b[0];
  const float* b1 = b[vectors - 1];
  for (size_t k = 0; k < depth; k++, a += depth_stride, b0 += tile_tokens, b1 += tile_tokens) {
    F column[vectors];
    column[0] = F::load_unaligned(b0);
    if constexpr (vectors == 2) column[1] = F::load_unaligned(b1);
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) {
      const F x(a[r * row_stride]);
      PKV_UNROLL
      for (unsigned n = 0; n < vectors; n++) sum[r][n] = Isa::fma(x, column[n], sum[r][n]);
    }
  }
  PKV_UNROLL
  for (unsigned r = 0; r < rows; r++) {
    PKV_UNROLL
    for (unsigned n = 0; n < vectors; n++)
      sum[r][n].store_unaligned(c + r * c_stride + n * F::size);
  }
}

// The same if the number of vectors, 1 or 2, is not a constant.
template <class Isa, unsigned rows, uint32_t row_stride, uint32_t depth_stride>
void multiply_rows(unsigned vectors, const float* a, const float* const* b, size_t depth, bool add,
                   float* c, size_t c_stride) {
  if constexpr (Floats<Isa>::size == tile_tokens) {
    if (vectors == 1)
      return multiply_tile<Isa, rows, 1, row_stride, depth_stride>(a, b, depth, add, c, c_stride);
  }
  multiply_tile<Isa, rows, 2, row_stride, depth_stride>(a, b, depth, add, c, c_stride);
}

}  // namespace pkv::kernels
