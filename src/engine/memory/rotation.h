// The rotation of the rows of a layer group, and the caller's matrices for it.
#pragma once

#include <pagedkv/cache.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/views.h"

namespace pkv::memory {

struct RotationMatrices {
  // [dim][dim]; empty if that side is not rotated, or if only the digest is known, from a file.
  std::vector<float> key, value;
  std::array<uint64_t, 2> digest;  // of both
};

// How a layer group rotates its rows.
struct Rotations {
  pkv_rotation kind = PKV_ROTATION_NONE;
  std::shared_ptr<const RotationMatrices> matrices;  // of PKV_ROTATION_MATRIX

  bool operator==(const Rotations& other) const;
};

// Throws INVALID_ARGUMENT for an unknown kind, and for matrices that the kind does not have or
// lacks, and if values are latent in K and cannot be rotated with it. `name` begins the sentences.
void check_rotation(pkv_rotation kind, const float* key, const float* value, uint32_t key_dim,
                    uint32_t value_dim, bool latent, const char* name);

// Copies the matrices of a rotation that was checked. Throws INVALID_ARGUMENT unless they are
// orthogonal.
Rotations copy_rotation(pkv_rotation kind, const float* key, const float* value, uint32_t key_dim,
                        uint32_t value_dim, const char* name);

// Sets the rotations of the two sides of a view, whose dims are set. A matrix may be NULL.
void set_rotation(kernels::KvView& view, pkv_rotation kind, const float* key, const float* value,
                  bool latent);
void set_rotation(kernels::KvView& view, const Rotations& rotations, bool latent);

}  // namespace pkv::memory
