// Rotates rows of fp32 before they are stored or multiplied, and back. All instruction sets compute
// each stored number by the same sums in the same order, so it has the same bits.
#pragma once

#include "kernels/convert.hpp"
#include "kernels/rotation.h"

namespace pkv::kernels {

// The sign that lane i of a vector gets in the step that exchanges lanes i and i ^ (1 << step).
alignas(64) static constexpr float butterfly_signs[4][16] = {
    {1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1},
    {1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1},
    {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1},
    {1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1}};

// Moves the number of lane i ^ distance to lane i.
template <class Isa, unsigned distance>
Floats<Isa> exchange_lanes(Floats<Isa> x) {
  constexpr unsigned d = distance;
  const typename Floats<Isa>::register_type r = x;
  if constexpr (Floats<Isa>::size == 4)
    return Floats<Isa>(__builtin_shufflevector(r, r, d, d ^ 1, d ^ 2, d ^ 3));
  else if constexpr (Floats<Isa>::size == 8)
    return Floats<Isa>(
        __builtin_shufflevector(r, r, d, d ^ 1, d ^ 2, d ^ 3, d ^ 4, d ^ 5, d ^ 6, d ^ 7));
  else
    return Floats<Isa>(__builtin_shufflevector(r, r, d, d ^ 1, d ^ 2, d ^ 3, d ^ 4, d ^ 5, d ^ 6,
                                               d ^ 7, d ^ 8, d ^ 9, d ^ 10, d ^ 11, d ^ 12, d ^ 13,
                                               d ^ 14, d ^ 15));
}

// Replaces lanes i and i + distance by their sum and difference.
template <class Isa, unsigned step>
Floats<Isa> butterfly(Floats<Isa> x) {
  return exchange_lanes<Isa, 1u << step>(x) + x * Floats<Isa>::load_aligned(butterfly_signs[step]);
}

// Does the steps whose pairs lie within one vector. A block has at least 16 dims, which are the
// lanes of the largest vector.
template <class Isa>
Floats<Isa> transform_vector(Floats<Isa> x) {
  x = butterfly<Isa, 1>(butterfly<Isa, 0>(x));
  if constexpr (Floats<Isa>::size >= 8) x = butterfly<Isa, 2>(x);
  if constexpr (Floats<Isa>::size >= 16) x = butterfly<Isa, 3>(x);
  return x;
}

// Does the steps whose pairs lie in different vectors, for one block.
template <class Isa>
void combine_vectors(float* row, uint32_t block) {
  using F = Floats<Isa>;
  for (uint32_t distance = F::size; distance < block; distance *= 2) {
    for (uint32_t begin = 0; begin < block; begin += 2 * distance) {
      for (uint32_t d = begin; d < begin + distance; d += F::size) {
        const F a = F::load_unaligned(row + d), b = F::load_unaligned(row + d + distance);
        (a + b).store_unaligned(row + d);
        (a - b).store_unaligned(row + d + distance);
      }
    }
  }
}

// Multiplies each block of a row by its signs and then by the Hadamard matrix, or back: by the
// matrix and then by the signs.
template <class Isa, bool back>
void hadamard(float* row, uint32_t dim, uint32_t block) {
  using F = Floats<Isa>;
  alignas(64) static constexpr auto signs = [] {
    struct {
      float of[max_dim];
    } table{};
    for (uint32_t d = 0; d < max_dim; d++) table.of[d] = hadamard_sign(d);
    return table;
  }();
  const F norm(hadamard_norm(block));
  const auto weight = [&](uint32_t d) { return norm * F::load_unaligned(signs.of + d); };
  for (uint32_t d = 0; d < dim; d += F::size) {
    const F x = F::load_unaligned(row + d);
    transform_vector<Isa>(back ? x : x * weight(d)).store_unaligned(row + d);
  }
  for (uint32_t begin = 0; begin < dim; begin += block) combine_vectors<Isa>(row + begin, block);
  if (!back) return;
  for (uint32_t d = 0; d < dim; d += F::size)
    (F::load_unaligned(row + d) * weight(d)).store_unaligned(row + d);
}

// Multiplies the row by the matrix. Products are rounded before they are added, as in plain C++.
template <class Isa>
void multiply_matrix(const float* matrix, uint32_t dim, float* row) {
  using F = Floats<Isa>;
  alignas(64) float sum[max_dim];
  for (uint32_t d = 0; d < dim; d += F::size) F(0.0f).store_aligned(sum + d);
  for (uint32_t i = 0; i < dim; i++, matrix += dim) {
    const F x(row[i]);
    for (uint32_t d = 0; d < dim; d += F::size)
      (F::load_aligned(sum + d) + x * F::load_unaligned(matrix + d)).store_aligned(sum + d);
  }
  __builtin_memcpy(row, sum, dim * sizeof(float));
}

// Multiplies the row by the transposed matrix.
template <class Isa>
void multiply_transposed(const float* matrix, uint32_t dim, float* row) {
  using F = Floats<Isa>;
  alignas(64) float result[max_dim];
  for (uint32_t i = 0; i < dim; i++, matrix += dim) {
    F sum(0.0f);
    for (uint32_t d = 0; d < dim; d += F::size)
      sum = Isa::fma(F::load_unaligned(matrix + d), F::load_unaligned(row + d), sum);
    result[i] = Isa::sum_of(sum);
  }
  __builtin_memcpy(row, result, dim * sizeof(float));
}

// Rotates a row of a group that has a rotation. It stays out of line, so that the machine code for
// groups without one is not affected.
template <class Isa>
[[gnu::noinline]] void rotate(const Rotation& rotation, uint32_t dim, float* row) {
  if (rotation.block != 0)
    hadamard<Isa, false>(row, dim, rotation.block);
  else
    multiply_matrix<Isa>(rotation.matrix, dim, row);
}

// Undoes rotate(), up to rounding.
template <class Isa>
[[gnu::noinline]] void rotate_back(const Rotation& rotation, uint32_t dim, float* row) {
  if (rotation.block != 0)
    hadamard<Isa, true>(row, dim, rotation.block);
  else
    multiply_transposed<Isa>(rotation.matrix, dim, row);
}

// Converts a caller's row to fp32 and rotates it.
template <class Isa>
void rotate_given(const Rotation& rotation, pkv_dtype dtype, const unsigned char* given,
                  uint32_t dim, float* row) {
  convert_from_rows<Isa, PKV_F32>(dtype, given, reinterpret_cast<unsigned char*>(row), dim);
  rotate<Isa>(rotation, dim, row);
}

}  // namespace pkv::kernels
