// The storage of K and V of each dtype: the bytes of a row and of a packed tile, and the order of
// elements in a tile. All functions are static, so that each file keeps the copy that was compiled
// with its own flags.
//
// A stored row is one token of one head: its elements, and behind them its scales if the dtype has
// any. An element of int8 and int4 is scale * n, where n is in two's complement:
//   int8  dim bytes, one n each; then one fp32 scale
//   int4  dim / 2 bytes, two n each, the even dim in the lower half;
//         then one bf16 scale per 32 dims
//   q8_0  one f16 scale and 32 bytes, one n each, per 32 dims
//   q4_0  one f16 scale and 16 bytes per 32 dims: byte i has n + 8 of dim i in its lower half, and
//         that of dim i + 16 in its upper half
// Tiles are never of the last two. A packed tile holds the elements of 16 rows in the order of
// packed_k_index() or packed_v_index(), then their scales, [scale][16 tokens]; it is padded to a
// multiple of 64 bytes.
#pragma once

#include "kernels/views.h"

namespace pkv::kernels {

inline constexpr uint32_t int4_group_size = 32;  // dims that share a scale
inline constexpr uint32_t block_dims = 32;       // dims of a block of q8_0 or q4_0

// Returns whether rows are blocks of a scale and elements each.
static inline constexpr bool is_in_blocks(pkv_dtype dtype) {
  return dtype == PKV_Q8_0 || dtype == PKV_Q4_0;
}

static inline constexpr bool is_fp8(pkv_dtype dtype) {
  return dtype == PKV_FP8_E4M3 || dtype == PKV_FP8_E5M2;
}

static inline constexpr uint32_t element_bits(pkv_dtype dtype) {
  switch (dtype) {
    case PKV_F32:
      return 32;
    case PKV_F16:
    case PKV_BF16:
      return 16;
    case PKV_INT8:
    case PKV_FP8_E4M3:
    case PKV_FP8_E5M2:
    case PKV_Q8_0:
      return 8;
    case PKV_INT4:
    case PKV_Q4_0:
      return 4;
  }
  return 0;
}

static inline constexpr uint32_t scales_per_row(pkv_dtype dtype, uint32_t dim) {
  return dtype == PKV_INT8     ? 1
         : dtype == PKV_INT4   ? (dim + int4_group_size - 1) / int4_group_size
         : is_in_blocks(dtype) ? dim / block_dims
                               : 0;
}
static inline constexpr uint32_t scale_bytes(pkv_dtype dtype) { return dtype == PKV_INT8 ? 4 : 2; }

static inline constexpr uint32_t elements_bytes(pkv_dtype dtype, uint32_t dim) {
  return dim * element_bits(dtype) / 8;
}

static inline constexpr uint32_t row_bytes(pkv_dtype dtype, uint32_t dim) {
  return elements_bytes(dtype, dim) + scales_per_row(dtype, dim) * scale_bytes(dtype);
}

static inline constexpr uint32_t tile_bytes(pkv_dtype dtype, uint32_t dim) {
  return (tile_tokens * row_bytes(dtype, dim) + 63) / 64 * 64;
}

// The number of elements that lie next to each other in a packed tile: dims of one token of K, or
// tokens of one dim of V. bf16, int8 and int4 are multiplied in pairs, so a 32-bit word holds 2, 4
// or 8 of them.
static inline constexpr uint32_t interleaved(pkv_dtype dtype) {
  return dtype == PKV_BF16 ? 2 : dtype == PKV_INT8 ? 4 : dtype == PKV_INT4 ? 8 : 1;
}

// The index of an element in a packed tile of K.
static inline constexpr uint32_t packed_k_index(pkv_dtype dtype, uint32_t token, uint32_t dim) {
  const uint32_t p = interleaved(dtype);
  return (dim / p * tile_tokens + token) * p + dim % p;
}

// The same for V. Shifting a word of p elements gives elements e and e + p / 2 as a pair of 16-bit
// numbers; these belong to neighbouring tokens.
static inline constexpr uint32_t packed_v_index(pkv_dtype dtype, uint32_t value_dim, uint32_t token,
                                                uint32_t dim) {
  const uint32_t p = interleaved(dtype), in_word = token % p;
  return (token / p * value_dim + dim) * p + (p == 1 ? 0 : in_word / 2 + in_word % 2 * (p / 2));
}

// The dims of a row that one Hadamard transform takes: the largest power of two that divides `dim`.
static inline constexpr uint32_t hadamard_block(uint32_t dim) { return dim & (0u - dim); }

}  // namespace pkv::kernels
