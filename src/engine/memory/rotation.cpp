// Checks rotations, and copies and names the caller's matrices.
#include "engine/memory/rotation.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cmath>
#include <span>

#include "base/enums.h"
#include "base/status.h"
#include "kernels/kernels.h"
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
  if (kind == PKV_ROTATION_HADAMARD) return {kind, kernels::hadamard_block(dim), nullptr};
  if (matrix == nullptr) return {};
  return {kind, 0, matrix};
}

}  // namespace

bool Rotations::operator==(const Rotations& other) const {
  return kind == other.kind &&
         (kind != PKV_ROTATION_MATRIX || matrices->digest == other.matrices->digest);
}

void check_rotation(pkv_rotation kind, const float* key, const float* value, uint32_t key_dim,
                    uint32_t value_dim, bool latent, const char* name) {
  check_enum(kind, "rotation", name);
  const bool given = key != nullptr || value != nullptr;
  if (given != (kind == PKV_ROTATION_MATRIX))
    fail(PKV_INVALID_ARGUMENT,
         "%s: rotation is %s, and there is %s matrix; MATRIX has one or two, others none", name,
         enum_name(kind), given ? "a" : "no");
  if (!latent || kind == PKV_ROTATION_NONE) return;
  if (kind == PKV_ROTATION_MATRIX)
    fail(PKV_INVALID_ARGUMENT, "%s: values are latent in K: their rotation cannot be a matrix",
         name);
  const uint32_t block = kernels::hadamard_block(key_dim);
  if (value_dim % block != 0)
    fail(PKV_INVALID_ARGUMENT,
         "%s: values are the first %u dims of K, which is rotated by runs of %u: they end inside "
         "a run",
         name, value_dim, block);
}

Rotations copy_rotation(pkv_rotation kind, const float* key, const float* value, uint32_t key_dim,
                        uint32_t value_dim, const char* name) {
  if (kind != PKV_ROTATION_MATRIX) return {kind, nullptr};
  auto matrices = std::make_shared<RotationMatrices>();
  matrices->key = copy_matrix(key, key_dim, "K", name);
  matrices->value = copy_matrix(value, value_dim, "V", name);
  matrices->digest = digest_of(*matrices);
  return {kind, std::move(matrices)};
}

void set_rotation(kernels::KvView& view, pkv_rotation kind, const float* key, const float* value,
                  bool latent) {
  if (kind == PKV_ROTATION_NONE) return;
  view.k.rotation = of_side(kind, view.k.dim, key);
  view.v.rotation = latent ? view.k.rotation : of_side(kind, view.v.dim, value);
}

void set_rotation(kernels::KvView& view, const Rotations& rotations, bool latent) {
  const auto data = [](const std::vector<float>& matrix) {
    return matrix.empty() ? nullptr : matrix.data();
  };
  if (rotations.matrices == nullptr)
    set_rotation(view, rotations.kind, nullptr, nullptr, latent);
  else
    set_rotation(view, rotations.kind, data(rotations.matrices->key),
                 data(rotations.matrices->value), latent);
}

}  // namespace pkv::memory
