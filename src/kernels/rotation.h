// The rotation of rows by an orthogonal matrix, as pkv_rotation describes it: which dims are
// rotated together, and the signs of the Hadamard transform. All functions are static, so that each
// file keeps the copy that was compiled with its own flags.
#pragma once

#include "kernels/views.h"

namespace pkv::kernels {

// The first 576 bits of the fraction of pi, which were certainly not chosen for a purpose.
static constexpr uint64_t hadamard_seed[max_dim / 64] = {
    0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0,
    0x082EFA98EC4E6C89, 0x452821E638D01377, 0xBE5466CF34E90C6C,
    0xC0AC29B7C97C50DD, 0x3F84D5B5B5470917, 0x9216D5D98979FB1B};

// -1 for the dims whose bit is set, the highest bit of a word first.
static inline constexpr float hadamard_sign(uint32_t dim) {
  return (hadamard_seed[dim / 64] >> (63 - dim % 64) & 1) != 0 ? -1.0f : 1.0f;
}

// 1 / sqrt(block), which makes the transform keep lengths. It is exact for powers of four.
static inline constexpr float hadamard_norm(uint32_t block) {
  float norm = 1.0f;
  for (; block >= 4; block /= 4) norm *= 0.5f;
  return block == 2 ? norm * 0x1.6a09e6p-1f : norm;
}

static inline constexpr bool rotates(const Rotation& rotation) {
  return rotation.block != 0 || rotation.matrix != nullptr;
}

}  // namespace pkv::kernels
