// The rotation of the rows of a layer group, and the caller's matrices for it.
#pragma once

#include <pagedkv/experimental.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/views.h"

namespace pkv::memory {

// A caller's rotation, which was checked: its kind, or its matrices.
struct GivenRotation {
  pkv_rotation kind = PKV_ROTATION_NONE;
  const float *key = nullptr, *value = nullptr;
};

struct RotationMatrices {
  // [dim][dim]; empty if that side is not rotated, or if only the digest is known, from a file.
  std::vector<float> key, value;
  std::array<uint64_t, 2> digest;  // of both
  pkv_rotation_matrices shown;     // to callers
};

// How a layer group rotates its rows: by a kind, or by matrices. Then the kind is NONE.
struct Rotations {
  pkv_rotation kind = PKV_ROTATION_NONE;
  std::shared_ptr<const RotationMatrices> matrices;

  bool rotate() const { return kind != PKV_ROTATION_NONE || matrices != nullptr; }
  // Returns the matrices as a caller gives them; NULL without any.
  const pkv_rotation_matrices* shown() const { return matrices ? &matrices->shown : nullptr; }
  bool operator==(const Rotations& other) const;
};

// Reads the rotation of a caller's group or view. Throws INVALID_ARGUMENT for an unknown kind, for
// matrices beside a kind, and if values are latent in K and cannot be rotated with it. `name`
// begins the sentences.
GivenRotation read_rotation(pkv_rotation kind, const pkv_rotation_matrices* matrices,
                            uint32_t key_dim, uint32_t value_dim, bool latent, const char* name);

// Copies the matrices of a rotation. Throws INVALID_ARGUMENT unless they are orthogonal.
Rotations copy_rotation(const GivenRotation& given, uint32_t key_dim, uint32_t value_dim,
                        const char* name);

// Sets the rotations of the two sides of a view, whose dims are set.
void set_rotation(kernels::KvView& view, const GivenRotation& given, bool latent);
void set_rotation(kernels::KvView& view, const Rotations& rotations, bool latent);

}  // namespace pkv::memory
