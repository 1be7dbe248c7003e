// Shared by int8 and int4 with VNNI. A 16-bit number x is multiplied as its two bytes, x * n = 256
// * (high * n) + low * n, so nothing is rounded; sums may wrap around on the way, but the final
// ones fit. The instruction (vpdpbusd) multiplies unsigned bytes by signed ones:
//   K  n becomes unsigned by adding an offset; the bytes of the query are signed. The offset times
//      the sum of the query's integers is subtracted again.
//   V  n is signed; the bytes of weights are unsigned.
//
//   struct Isa {
//     // sum + the products of 4 unsigned bytes of a and 4 signed bytes of b, in each lane
//     static I dot_bytes(I sum, U a, U b);
//     // Stores the lower half of each lane; order has the place of each byte of 8 halves.
//     static void narrow_ordered(void* to, U, __m128i order);
//     // How many times there are registers for two sums: of the high bytes and of the low ones.
//     static constexpr unsigned byte_sums;
//   };
#pragma once

#include <immintrin.h>

#include "kernels/integer_values.hpp"

namespace pkv::kernels {

template <class Isa>
concept MultipliesBytes = requires { Isa::byte_sums; };

// A query row as the low and high bytes of its integers, both signed.
struct ByteQuery {
  float scale;  // an element is scale times its integer; NaN if the row is not finite
  // After the struct there is, for each group of dims that share a scale of K, -offset times the
  // sum of the group's integers; then the bytes, in the order in which K is multiplied.
  int32_t* words() { return reinterpret_cast<int32_t*>(this + 1); }
  const int32_t* words() const { return reinterpret_cast<const int32_t*>(this + 1); }
  static constexpr size_t bytes(uint32_t dim, uint32_t groups) { return 4 + groups * 4 + dim * 2; }
};

// order has the place of each byte of 8 dims in alternating low and high bytes. The integers of a
// row that is not finite may have any value, so their sums are unsigned and wrap around.
template <class Isa>
void byte_query(const float* row, uint32_t dim, uint32_t group_dims, uint32_t offset, __m128i order,
                ByteQuery* to) {
  using U = Words<Isa>;
  alignas(64) int32_t q[max_dim];
  to->scale = query_integers<Isa>(row, dim, q);
  const uint32_t groups = (dim + group_dims - 1) / group_dims;
  uint32_t* const sums = reinterpret_cast<uint32_t*>(to->words());
  unsigned char* bytes = reinterpret_cast<unsigned char*>(sums + groups);
  for (uint32_t g = 0; g < groups; g++) sums[g] = 0;
  for (uint32_t d = 0; d < dim; d += U::size, bytes += 2 * U::size) {
    for (unsigned e = 0; e < U::size; e++)
      sums[d / group_dims] -= offset * static_cast<uint32_t>(q[d + e]);
    const U x = load_words<Isa>(q + d);
    const U high = x + U(128u);
    Isa::narrow_ordered(bytes, (high & U(0xFF00u)) | (x & U(0xFFu)), order);
  }
}

// The largest integer that stands for a weight times a scale: a little below 2^16.
inline constexpr float byte_weight_range = 65000.0f;

// The low and high bytes of a row's weights of 16 tokens, in the order in which V is multiplied.
using ByteWords = uint32_t[tile_tokens / 2];

// Rounds weights times scales to 16-bit integers and stores their bytes. order has the place of
// each byte of 8 tokens in alternating low and high bytes.
template <class Isa, unsigned rows, unsigned tiles, unsigned max_scales>
void byte_weights(const ScoreRow* weights, const TileScales<Isa, max_scales>& scales,
                  unsigned groups, __m128i order, ByteWords (*to)[max_scales], WeightUnit* units) {
  constexpr unsigned lanes = Floats<Isa>::size;
  find_units<Isa, rows, tiles, max_scales>(weights, scales, groups, byte_weight_range, units);
  for (unsigned g = 0; g < groups; g++) {
    PKV_UNROLL
    for (unsigned j = 0; j < tiles * rows; j++) {
      PKV_UNROLL
      for (unsigned n = 0; n < vectors_per_tile<Isa>; n++)
        Isa::narrow_ordered(reinterpret_cast<unsigned char*>(to[j][g]) + n * lanes * 2,
                            in_units<Isa>(Floats<Isa>::load_aligned(weights[j] + n * lanes),
                                          scales[j / rows][g][n], units[j % rows].inverse),
                            order);
    }
  }
}

// Returns 256 high + low.
template <class Isa>
Floats<Isa> sum_of_bytes(Ints<Isa> high, Ints<Isa> low) {
  return xsimd::to_float((high << 8) + low);
}

// Adds 256 high + low, times the row's factor, to some vectors of dims of each row.
template <class Isa, unsigned rows, unsigned vectors>
void add_bytes(const Ints<Isa> (&high)[rows][vectors], const Ints<Isa> (&low)[rows][vectors],
               const WeightUnit* units, float* out, uint32_t dim) {
  using F = Floats<Isa>;
  PKV_UNROLL
  for (unsigned r = 0; r < rows; r++) {
    const F factor(units[r].factor);
    PKV_UNROLL
    for (unsigned n = 0; n < vectors; n++) {
      float* const to = out + size_t{r} * dim + n * F::size;
      Isa::fma(sum_of_bytes<Isa>(high[r][n], low[r][n]), factor, F::load_unaligned(to))
          .store_unaligned(to);
    }
  }
}

// Prefetches what a part of a tile of V becomes in the next one: `bytes` from `from` on.
template <class Isa, unsigned bytes>
[[gnu::always_inline]] static inline void prefetch_part(const unsigned char* from, unsigned part) {
  if (part * bytes % 64 == 0) prefetch_lines<Isa>(from + part * bytes, bytes);
}

}  // namespace pkv::kernels
