// Matrix products in register tiles of some rows times two vectors of columns (Goto and
// van de Geijn 2008). The left factor may be packed: then numbers of the rows of a register tile
// lie side by side, [depth][rows], and are read in the order of memory.
#pragma once

#include "kernels/vectors.hpp"
#include "kernels/views.h"

namespace pkv::kernels {

// sum[r][n] += the sum over k < depth of the products of a(r, k) and vector n of row k of b, for
// `rows` rows and `vectors` vectors of columns. a(r, k) is at a + r * row_stride + k *
// depth_stride, the vector at b[n] + k * 64.
//
//   Products
//     Factor, Columns, Sums  of a, of b, and of their products
//     load(from)             returns a vector of columns
//     add(sums, x, columns)  returns the sums plus the products of a factor and the columns
template <class Products, unsigned rows, unsigned vectors, uint32_t row_stride,
          uint32_t depth_stride>
[[gnu::always_inline]] static inline void add_products(
    const typename Products::Factor* a, const unsigned char* const* b, size_t depth,
    typename Products::Sums (&sum)[rows][vectors]) {
  const unsigned char *b0 = b[0], *b1 = b[vectors - 1];
  for (size_t k = 0; k < depth; k++, a += depth_stride, b0 += 64, b1 += 64) {
    typename Products::Columns columns[vectors];
    columns[0] = Products::load(b0);
    if constexpr (vectors == 2) columns[1] = Products::load(b1);
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) {
      const typename Products::Factor x = a[r * row_stride];
      PKV_UNROLL
      for (unsigned n = 0; n < vectors; n++) sum[r][n] = Products::add(sum[r][n], x, columns[n]);
    }
  }
}

template <class Isa>
struct FloatProducts {
  using Factor = float;
  using Columns = Floats<Isa>;
  using Sums = Floats<Isa>;
  static Columns load(const unsigned char* from) { return as_floats<Isa>(load_words<Isa>(from)); }
  static Sums add(Sums sums, Factor x, Columns columns) {
    return Isa::fma(Columns(x), columns, sums);
  }
};

// c[r][j] = (add ? c[r][j] : 0) + the products of fp32 numbers. Rows of c are c_stride floats
// apart.
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
  const unsigned char* columns[vectors];
  for (unsigned n = 0; n < vectors; n++) columns[n] = reinterpret_cast<const unsigned char*>(b[n]);
  add_products<FloatProducts<Isa>, rows, vectors, row_stride, depth_stride>(a, columns, depth, sum);
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
