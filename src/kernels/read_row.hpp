// Plain rows that kernels cannot multiply as they are (SideView::in_memory), converted to fp32. No
// byte behind a row is read.
#pragma once

#include "kernels/convert.hpp"
#include "kernels/quantise.hpp"
#include "kernels/tile_layout.h"

namespace pkv::kernels {

// The scales of the blocks of a row, with numbers that are not used behind them.
template <class Isa>
struct BlockScales {
  static constexpr uint32_t most = (max_dim / block_dims + 15) / 16 * 16;

  alignas(64) float of[most];

  BlockScales(const unsigned char* row, uint32_t block_bytes, uint32_t blocks) {
    alignas(64) uint16_t bits[most] = {};
    for (uint32_t b = 0; b < blocks; b++)
      __builtin_memcpy(bits + b, row + size_t{b} * block_bytes, sizeof bits[b]);
    for (uint32_t b = 0; b < blocks; b += Floats<Isa>::size)
      Isa::load_f16(bits + b).store_aligned(of + b);
  }
};

// Reads blocks of q8_0 or q4_0.
template <class Isa, pkv_dtype dtype>
void read_blocks(const unsigned char* from, uint32_t dim, float* to) {
  constexpr unsigned lanes = Floats<Isa>::size;
  constexpr uint32_t bytes = row_bytes(dtype, block_dims);
  const BlockScales<Isa> scales(from, bytes, dim / block_dims);
  for (uint32_t b = 0; b < dim / block_dims; b++, from += bytes, to += block_dims) {
    const Floats<Isa> scale(scales.of[b]);
    const unsigned char* const elements = from + scale_bytes(dtype);
    if constexpr (dtype == PKV_Q8_0) {
      for (uint32_t d = 0; d < block_dims; d += lanes)
        (xsimd::to_float(signed_field<Isa, 8>(Isa::widen_bytes(elements + d), 0)) * scale)
            .store_unaligned(to + d);
    } else {
      for (uint32_t d = 0; d < block_dims / 2; d += lanes) {
        const Ints<Isa> both = same_bits<Ints<Isa>>(Isa::widen_bytes(elements + d));
        const Ints<Isa> low = (both & Ints<Isa>(15)) - Ints<Isa>(8),
                        high = (both >> 4) - Ints<Isa>(8);
        (xsimd::to_float(low) * scale).store_unaligned(to + d);
        (xsimd::to_float(high) * scale).store_unaligned(to + d + block_dims / 2);
      }
    }
  }
}

// Reads elements of a caller's dtype, and adds zeros.
template <class Isa, pkv_dtype dtype>
void read_elements(const unsigned char* from, uint32_t dim, float* to) {
  using From = Elements<Isa, dtype>;
  constexpr uint32_t lanes = Floats<Isa>::size;
  uint32_t d = 0;
  for (; d + lanes <= dim; d += lanes)
    From::load(from + size_t{d} * From::bytes).store_unaligned(to + d);
  for (; d < whole_dims(dim); d += lanes) {
    alignas(64) unsigned char rest[lanes * From::bytes] = {};
    if (d < dim)
      __builtin_memcpy(rest, from + size_t{d} * From::bytes, size_t{dim - d} * From::bytes);
    From::load(rest).store_unaligned(to + d);
  }
}

// Reads whole_dims() floats of a row.
template <class Isa>
void read_row(RowFormat format, const unsigned char* from, float* to) {
  switch (format.dtype) {
    case PKV_Q8_0:
      return read_blocks<Isa, PKV_Q8_0>(from, format.dim, to);
    case PKV_Q4_0:
      return read_blocks<Isa, PKV_Q4_0>(from, format.dim, to);
    case PKV_F32:
      return read_elements<Isa, PKV_F32>(from, format.dim, to);
    case PKV_F16:
      return read_elements<Isa, PKV_F16>(from, format.dim, to);
    default:
      return read_elements<Isa, PKV_BF16>(from, format.dim, to);
  }
}

}  // namespace pkv::kernels
