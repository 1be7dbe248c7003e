// Checks rotations, and copies and names the caller's matrices.
#include "engine/memory/rotation.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cmath>
#include <span>

#include "base/enums.h"
#include "base/status.h"
#include "base/structs.h"
#include "kernels/tile_layout.h"

namespace pkv::memory {

namespace {

// By how much the product of two rows may differ from 0, or that of a row with itself from 1.
constexpr double tolerance = 1e-4;

void check_orthogonal(const float* matrix, uint32_t dim, const char* side, const char* name) {
  for (uint32_t i = 0; i < dim; i++) {
    for (uint32_t j = 0; j <= i; j++) {
      double product = 0;
      for (uint32_t d = 0; d < dim; d++)
        product += static_cast<double>(matrix[size_t{i} * dim + d]) *
                   static_cast<double>(matrix[size_t{j} * dim + d]);
      if (std::fabs(product - (i == j ? 1 : 0)) <= tolerance) continue;
      fail(PKV_INVALID_ARGUMENT,
           "%s: the rotation of %s is not orthogonal: the product of rows %u and %u is %g", name,
           side, i, j, product);
    }
  }
}

std::vector<float> copy_matrix(const float* matrix, uint32_t dim, const char* side,
                               const char* name) {
  if (matrix == nullptr) return {};
  check_orthogonal(matrix, dim, side, name);
  return {matrix, matrix + size_t{dim} * dim};
}

// A matrix that is missing counts as one without bytes.
std::array<uint64_t, 2> digest_of(const RotationMatrices& matrices) {
  const XXH128_hash_t key = XXH3_128bits(matrices.key.data(), matrices.key.size() * sizeof(float));
  const XXH128_hash_t both = XXH3_128bits_withSeed(
      matrices.value.data(), matrices.value.size() * sizeof(float), key.low64 ^ key.high64);
  return {both.low64, both.high64};
}

kernels::Rotation of_side(pkv_rotation kind, uint32_t dim, const float* matrix) {
  return {kind == PKV_ROTATION_HADAMARD ? kernels::hadamard_block(dim) : 0, matrix};
}

const float* data_of(const std::vector<float>& matrix) {
  return matrix.empty() ? nullptr : matrix.data();
}

}  // namespace

bool Rotations::operator==(const Rotations& other) const {
  if (kind != other.kind || (matrices == nullptr) != (other.matrices == nullptr)) return false;
  return matrices == nullptr || matrices->digest == other.matrices->digest;
}

GivenRotation read_rotation(pkv_rotation kind, const pkv_rotation_matrices* matrices,
                            uint32_t key_dim, uint32_t value_dim, bool latent, const char* name) {
  check_enum(kind, "rotation", name);
  if (matrices != nullptr) {
    const pkv_rotation_matrices given = read_struct(matrices, "rotation_matrices");
    if (given.reserved != 0)
      fail(PKV_INVALID_ARGUMENT, "%s: rotation_matrices: reserved is %u, not 0", name,
           given.reserved);
    if (kind != PKV_ROTATION_NONE)
      fail(PKV_INVALID_ARGUMENT, "%s: rotation is %s, and there are rotation_matrices; give one",
           name, enum_name(kind));
    if (given.key == nullptr && given.value == nullptr)
      fail(PKV_INVALID_ARGUMENT, "%s: rotation_matrices has neither key nor value", name);
    if (latent)
      fail(PKV_INVALID_ARGUMENT, "%s: values are latent in K: their rotation cannot be a matrix",
           name);
    return {kind, given.key, given.value};
  }
  const uint32_t block = kernels::hadamard_block(key_dim);
  if (latent && kind == PKV_ROTATION_HADAMARD && value_dim % block != 0)
    fail(PKV_INVALID_ARGUMENT,
         "%s: values are the first %u dims of K, which is rotated by runs of %u: they end inside "
         "a run",
         name, value_dim, block);
  return {kind};
}

Rotations copy_rotation(const GivenRotation& given, uint32_t key_dim, uint32_t value_dim,
                        const char* name) {
  if (given.key == nullptr && given.value == nullptr) return {given.kind, nullptr};
  auto copy = std::make_shared<RotationMatrices>();
  copy->key = copy_matrix(given.key, key_dim, "K", name);
  copy->value = copy_matrix(given.value, value_dim, "V", name);
  copy->digest = digest_of(*copy);
  copy->shown = {sizeof copy->shown, 0, data_of(copy->key), data_of(copy->value)};
  return {given.kind, std::move(copy)};
}

void set_rotation(kernels::KvView& view, const GivenRotation& given, bool latent) {
  view.k.rotation = of_side(given.kind, view.k.dim, given.key);
  view.v.rotation = latent ? view.k.rotation : of_side(given.kind, view.v.dim, given.value);
}

void set_rotation(kernels::KvView& view, const Rotations& rotations, bool latent) {
  GivenRotation given{rotations.kind};
  if (rotations.matrices != nullptr)
    given = {rotations.kind, data_of(rotations.matrices->key), data_of(rotations.matrices->value)};
  set_rotation(view, given, latent);
}

}  // namespace pkv::memory
