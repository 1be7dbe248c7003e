// The rotation of rows, from its definition. The vector kernels must give the same bits.
#pragma once

#include "kernels/rotation.h"

namespace pkv::kernels::scalar {

// Multiplies a block by the Hadamard matrix, without its norm.
inline void hadamard_transform(float* block, uint32_t dims) {
  for (uint32_t distance = 1; distance < dims; distance *= 2) {
    for (uint32_t d = 0; d < dims; d++) {
      if ((d & distance) != 0) continue;
      const float a = block[d], b = block[d + distance];
      block[d] = a + b;
      block[d + distance] = a - b;
    }
  }
}

inline void rotate(const Rotation& rotation, uint32_t dim, float* row) {
  if (rotation.block != 0) {
    for (uint32_t d = 0; d < dim; d++)
      row[d] = row[d] * (hadamard_norm(rotation.block) * hadamard_sign(d));
    for (uint32_t d = 0; d < dim; d += rotation.block) hadamard_transform(row + d, rotation.block);
    return;
  }
  float sum[max_dim] = {};
  for (uint32_t i = 0; i < dim; i++)
    for (uint32_t d = 0; d < dim; d++) sum[d] += row[i] * rotation.matrix[i * dim + d];
  for (uint32_t d = 0; d < dim; d++) row[d] = sum[d];
}

inline void rotate_back(const Rotation& rotation, uint32_t dim, float* row) {
  if (rotation.block != 0) {
    for (uint32_t d = 0; d < dim; d += rotation.block) hadamard_transform(row + d, rotation.block);
    for (uint32_t d = 0; d < dim; d++)
      row[d] = row[d] * (hadamard_norm(rotation.block) * hadamard_sign(d));
    return;
  }
  float result[max_dim] = {};
  for (uint32_t i = 0; i < dim; i++)
    for (uint32_t d = 0; d < dim; d++) result[i] += row[d] * rotation.matrix[i * dim + d];
  for (uint32_t d = 0; d < dim; d++) row[d] = result[d];
}

}  // namespace pkv::kernels::scalar
