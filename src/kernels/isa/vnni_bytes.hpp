// Shared by int8 and int4 with AVX-512 VNNI. A 16-bit number x is multiplied as its two bytes, x *
// n = 256 * (high * n) + low * n, so nothing is rounded; sums may wrap around on the way, but the
// final ones fit. The instruction (vpdpbusd) multiplies unsigned bytes by signed ones:
//   K  n becomes unsigned by adding an offset; the bytes of the query are signed. The offset times
//      the sum of the query's integers is subtracted again.
//   V  n is signed; the bytes of weights are unsigned.
#pragma once

#include <immintrin.h>

#include "kernels/integer_values.hpp"

namespace pkv::kernels {

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
  alignas(64) int32_t q[max_dim];
  to->scale = query_integers<Isa>(row, dim, q);
  const uint32_t groups = (dim + group_dims - 1) / group_dims;
  uint32_t* const sums = reinterpret_cast<uint32_t*>(to->words());
  unsigned char* bytes = reinterpret_cast<unsigned char*>(sums + groups);
  for (uint32_t g = 0; g < groups; g++) sums[g] = 0;
  for (uint32_t d = 0; d < dim; d += 16, bytes += 32) {
    const __m512i x = _mm512_load_si512(q + d);
    sums[d / group_dims] -= offset * static_cast<uint32_t>(_mm512_reduce_add_epi32(x));
    const __m512i high = _mm512_add_epi32(x, _mm512_set1_epi32(128)),
                  low_bytes = _mm512_set1_epi16(0xFF);
    const __m512i digits =
        _mm512_or_si512(_mm512_andnot_si512(low_bytes, high), _mm512_and_si512(low_bytes, x));
    const __m256i ordered =
        _mm256_shuffle_epi8(_mm512_cvtepi32_epi16(digits), _mm256_broadcastsi128_si256(order));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes), ordered);
  }
}

// The largest integer that stands for a weight times a scale: a little below 2^16.
inline constexpr float byte_weight_range = 65000.0f;

// The low and high bytes of a row's weights of 16 tokens, in the order in which V is multiplied.
using ByteWords = int32_t[tile_tokens / 2];

// Rounds weights times scales to 16-bit integers and stores their bytes. order has the place of
// each byte of 8 tokens in alternating low and high bytes.
template <class Isa, unsigned rows, unsigned tiles, unsigned max_scales>
void byte_weights(const ScoreRow* weights, const TileScales<Isa, max_scales>& scales,
                  unsigned groups, __m128i order, ByteWords (*to)[max_scales], WeightUnit* units) {
  find_units<Isa, rows, tiles, max_scales>(weights, scales, groups, byte_weight_range, units);
  __m512 weight[tiles * rows];
  PKV_UNROLL
  for (unsigned j = 0; j < tiles * rows; j++)
    weight[j] = _mm512_mul_ps(_mm512_load_ps(weights[j]), _mm512_set1_ps(units[j % rows].inverse));
  for (unsigned g = 0; g < groups; g++) {
    PKV_UNROLL
    for (unsigned j = 0; j < tiles * rows; j++) {
      const __m512i integers = _mm512_cvtps_epi32(_mm512_mul_ps(weight[j], scales[j / rows][g][0]));
      const __m256i ordered =
          _mm256_shuffle_epi8(_mm512_cvtepi32_epi16(integers), _mm256_broadcastsi128_si256(order));
      _mm256_store_si256(reinterpret_cast<__m256i*>(to[j][g]), ordered);
    }
  }
}

// Adds 256 high + low, times the row's factor, to some vectors of dims of each row.
template <class Isa, unsigned rows, unsigned vectors>
void add_bytes(const __m512i (&high)[rows][vectors], const __m512i (&low)[rows][vectors],
               const WeightUnit* units, float* out, uint32_t dim) {
  PKV_UNROLL
  for (unsigned r = 0; r < rows; r++) {
    const __m512 factor = _mm512_set1_ps(units[r].factor);
    PKV_UNROLL
    for (unsigned n = 0; n < vectors; n++) {
      float* const to = out + size_t{r} * dim + n * 16;
      const __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(high[r][n], 8), low[r][n]);
      _mm512_storeu_ps(to, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), factor, _mm512_loadu_ps(to)));
    }
  }
}

}  // namespace pkv::kernels
