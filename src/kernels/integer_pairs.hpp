// int8 and int4 in pairs of 16-bit integers. Queries are rounded as for few rows
// (integer_keys.hpp). Weights times scales of V are rounded to integers of 15 bits; their unit is
// chosen for each row and strip.
#pragma once

#include "kernels/matmul.hpp"
#include "kernels/pairs.hpp"

namespace pkv::kernels {

template <class Isa>
concept MultipliesIntegerPairs = requires { Isa::multiplies_integer_pairs; };

// Words of pairs and their products, for add_products().
template <class Isa>
struct IntegerProducts {
  using Factor = uint32_t;
  using Columns = Words<Isa>;
  using Sums = Ints<Isa>;
  static Columns load(const unsigned char* from) { return load_words<Isa>(from); }
  static Sums add(Sums sums, Factor x, Columns columns) {
    return Isa::dot_pairs(sums, columns, Columns(x));
  }
};

// The sums of the products of a register tile: of `pairs` words of a, and of b from `byte` on.
template <class Isa, unsigned rows, unsigned vectors, uint32_t a_stride>
struct IntegerSums {
  Ints<Isa> sum[rows][vectors];

  [[gnu::always_inline]] IntegerSums(const uint32_t* a, TilePointers b, size_t byte, size_t pairs) {
    PKV_UNROLL
    for (auto& row : sum) {
      PKV_UNROLL
      for (auto& vector : row) vector = Ints<Isa>(0);
    }
    const unsigned char* columns[vectors];
    for (unsigned n = 0; n < vectors; n++) columns[n] = b[n] + byte;
    add_products<IntegerProducts<Isa>, rows, vectors, a_stride, 1>(a, columns, pairs, sum);
  }
};

// A tile is [pair of dims][16 tokens][2]; behind it are its scales in fp32, [scale][16 tokens].
template <class Isa, pkv_dtype dtype>
struct IntegerKeyPairs {
  static constexpr size_t column_bytes = 4;
  static size_t tile_bytes(uint32_t dim) {
    return size_t{dim / 2 + scales_per_row(dtype, dim)} * 64;
  }

  static bool put_query(const float* q, uint32_t dim, float, uint32_t* to, float* unit) {
    *unit = query_pairs<Isa, p>(q, dim, to);
    return true;
  }

  static void copy(const unsigned char* tile, uint32_t dim, unsigned char* to) {
    for (uint32_t d = 0; d < dim; d += p, tile += 64)
      for (unsigned n = 0; n < 64; n += lanes * 4) {
        const Words<Isa> words = load_words<Isa>(tile + n);
        for (unsigned e = 0; e < p / 2; e++)
          signed_pair<Isa, dtype>(words, e).store_aligned(
              reinterpret_cast<uint32_t*>(to + (d / 2 + e) * 64 + n));
      }
    float* scales = reinterpret_cast<float*>(to + size_t{dim} * 32);
    for (unsigned g = 0; g < scales_per_row(dtype, dim); g++, scales += tile_tokens)
      for (unsigned n = 0; n < vectors_per_tile<Isa>; n++)
        token_scales<Isa, dtype>(tile + g * scale_bytes(dtype) * tile_tokens, n)
            .store_aligned(scales + n * lanes);
  }

  template <unsigned rows>
  static void multiply(unsigned vectors, const uint32_t* q, const float* units, TilePointers b,
                       uint32_t dim, float* scores) {
    if constexpr (vectors_per_tile<Isa> == 1)
      if (vectors == 1) return multiply_vectors<rows, 1>(q, units, b, dim, scores);
    multiply_vectors<rows, 2>(q, units, b, dim, scores);
  }

 private:
  using F = Floats<Isa>;
  static constexpr unsigned p = interleaved(dtype), lanes = F::size;

  // The sums of dims that share a scale are multiplied by it, and added up in memory: there are no
  // registers left for it.
  template <unsigned rows, unsigned vectors>
  static void multiply_vectors(const uint32_t* q, const float* units, TilePointers b, uint32_t dim,
                               float* scores) {
    const uint32_t group_dims = dtype == PKV_INT8 ? dim : int4_group_size;
    size_t scales = size_t{dim} * 32;
    add_group<rows, vectors, false>(q, units, b, 0, dim < group_dims ? dim : group_dims, scales,
                                    scores);
    for (uint32_t d = group_dims; d < dim; d += group_dims)
      add_group<rows, vectors, true>(q, units, b, d, dim - d < group_dims ? dim - d : group_dims,
                                     scales += 64, scores);
  }

  // Adds the products of `dims` dims from d on, or replaces the scores by them. It is not inlined,
  // because GCC 12 would keep a second copy of the scores on the stack.
  template <unsigned rows, unsigned vectors, bool add>
  [[gnu::noinline]] static void add_group(const uint32_t* q, const float* units, TilePointers b,
                                          uint32_t d, uint32_t dims, size_t scales, float* scores) {
    const IntegerSums<Isa, rows, vectors, pair_stride> sums(q + d / 2, b, size_t{d} * 32, dims / 2);
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) {
      const F unit(units[r]);
      PKV_UNROLL
      for (unsigned n = 0; n < vectors; n++) {
        float* const to = scores + r * score_stride + n * lanes;
        const F scale = as_floats<Isa>(load_words<Isa>(b[n] + scales)) * unit,
                sum = xsimd::to_float(sums.sum[r][n]);
        (add ? Isa::fma(sum, scale, F::load_unaligned(to)) : sum * scale).store_unaligned(to);
      }
    }
  }
};

// V is [16 dims][pair of tokens][16][2]. Its integers are finite, and where a token is not present
// they may have any value: its weight is 0.
template <class Isa, pkv_dtype dtype>
struct IntegerValuePairs {
  static constexpr size_t column_bytes = 4;
  static constexpr bool skip_not_finite = true;
  // int8: the scale of each token. int4: the largest of its scales, then the scales.
  static uint32_t scales(uint32_t dim) {
    return dtype == PKV_INT8 ? 1 : 1 + scales_per_row(dtype, dim);
  }
  static uint32_t scale_of(uint32_t d) { return dtype == PKV_INT8 ? 0 : 1 + d / int4_group_size; }

  static bool copy(const unsigned char* tile, uint32_t dim, TokenMask present,
                   uint32_t strip_tokens, unsigned char* to, float* scales) {
    if (present != 0) {
      for (uint32_t word = 0; word < tile_tokens / p; word++)
        for (uint32_t d = 0; d < dim; d += lanes) {
          const Words<Isa> words = load_words<Isa>(tile + (size_t{word} * dim + d) * 4);
          unsigned char* const panel =
              to + d / tile_tokens * size_t{strip_tokens} * 32 + d % tile_tokens * 4;
          for (unsigned e = 0; e < p / 2; e++)
            signed_pair<Isa, dtype>(words, e).store_aligned(
                reinterpret_cast<uint32_t*>(panel + (word * p / 2 + e) * 64));
        }
    }
    return copy_scales(tile, dim, present, strip_tokens, scales);
  }

  static float absorb(float* scores, uint32_t n, uint32_t end, const float* scales, uint32_t dim,
                      RowState row) {
    // The bits of nonnegative numbers have the same order as the numbers; NaN has the largest bits.
    Words<Isa> max_bits(0u);
    if (n != 0)
      absorb_row<Isa>(scores, n, dim, row, [&](F weight, uint32_t t) {
        const F product = weight * F::load_aligned(scales + t);
        max_bits = xsimd::max(max_bits, same_bits<Words<Isa>>(product));
        (dtype == PKV_INT8 ? product : weight).store_aligned(scores + t);
      });
    for (uint32_t t = n; t < end; t++) scores[t] = 0;
    const F x = as_floats<Isa>(max_bits);
    const float largest = Isa::max_of(x);
    const bool finite = xsimd::all(x - x == F(0.0f));
    const F inverse(finite && largest >= min_quantised ? weight_range / largest : 0.0f);
    if constexpr (dtype == PKV_INT8) {
      put_integers(end, scores, [&](uint32_t t) { return F::load_aligned(scores + t) * inverse; });
    } else {  // multiply() takes the scales of each group of dims
      for (uint32_t t = 0; t < n; t += lanes)
        (F::load_aligned(scores + t) * inverse).store_aligned(scores + t);
    }
    return !finite ? __builtin_nanf("") : largest < min_quantised ? 0.0f : largest / weight_range;
  }

  template <unsigned rows>
  static void multiply(unsigned vectors, const float* weights, const float* units, TilePointers b,
                       const float* scales, uint32_t n, float* out, uint32_t dim) {
    if constexpr (dtype == PKV_INT8) {
      multiply_integers<rows, score_stride>(vectors, reinterpret_cast<const uint32_t*>(weights),
                                            units, b, n, out, dim);
    } else {
      alignas(64) uint32_t integers[rows][score_stride / 2];
      for (unsigned r = 0; r < rows; r++)
        put_integers(n, integers[r], [&](uint32_t t) {
          return F::load_aligned(weights + r * score_stride + t) * F::load_aligned(scales + t);
        });
      multiply_integers<rows, score_stride / 2>(vectors, integers[0], units, b, n, out, dim);
    }
  }

 private:
  using F = Floats<Isa>;
  static constexpr unsigned p = interleaved(dtype), lanes = F::size;

  // Scales that are not finite, and those of tokens that are not present, become 0.
  static bool copy_scales(const unsigned char* tile, uint32_t dim, TokenMask present,
                          uint32_t strip_tokens, float* to) {
    const size_t begin = size_t{dim} * tile_tokens * element_bits(dtype) / 8;
    bool finite = true;
    for (uint32_t t = 0; t < tile_tokens; t++) {
      float largest = 0;
      for (uint32_t g = 0; g < scales_per_row(dtype, dim); g++) {
        float scale = 0;
        if ((present >> t & 1) != 0)
          scale = IntegerValueTile<Isa, dtype>::token_scale(tile + begin, g * int4_group_size, t);
        if (!(scale - scale == 0)) finite = false, scale = 0;
        if (scale > largest) largest = scale;
        to[scale_of(g * int4_group_size) * strip_tokens + t] = scale;
      }
      to[t] = largest;
    }
    return finite;
  }

  // Rounds n numbers to integers of 16 bits; vector(t) returns the one that begins at number t.
  template <class Vector>
  static void put_integers(uint32_t n, void* to, const Vector& vector) {
    unsigned char* const halves = static_cast<unsigned char*>(to);
    for (uint32_t t = 0; t < n; t += 2 * lanes)
      Isa::narrow_rounded(halves + t * 2, vector(t), t + lanes < n ? vector(t + lanes) : F(0.0f));
  }

  template <unsigned rows, uint32_t stride>
  static void multiply_integers(unsigned vectors, const uint32_t* weights, const float* units,
                                TilePointers b, uint32_t n, float* out, uint32_t dim) {
    if constexpr (vectors_per_tile<Isa> == 1)
      if (vectors == 1) return multiply_vectors<rows, 1, stride>(weights, units, b, n, out, dim);
    multiply_vectors<rows, 2, stride>(weights, units, b, n, out, dim);
  }

  template <unsigned rows, unsigned vectors, uint32_t stride>
  static void multiply_vectors(const uint32_t* weights, const float* units, TilePointers b,
                               uint32_t n, float* out, uint32_t dim) {
    const IntegerSums<Isa, rows, vectors, stride> sums(weights, b, 0, n / 2);
    PKV_UNROLL
    for (unsigned r = 0; r < rows; r++) {
      PKV_UNROLL
      for (unsigned i = 0; i < vectors; i++) {
        float* const to = out + size_t{r} * dim + i * lanes;
        Isa::fma(xsimd::to_float(sums.sum[r][i]), F(units[r]), F::load_unaligned(to))
            .store_unaligned(to);
      }
    }
  }
};

template <MultipliesIntegerPairs Isa>
struct KeyPairs<Isa, PKV_INT8> : IntegerKeyPairs<Isa, PKV_INT8> {};
template <MultipliesIntegerPairs Isa>
struct KeyPairs<Isa, PKV_INT4> : IntegerKeyPairs<Isa, PKV_INT4> {};
template <MultipliesIntegerPairs Isa>
struct ValuePairs<Isa, PKV_INT8> : IntegerValuePairs<Isa, PKV_INT8> {};
template <MultipliesIntegerPairs Isa>
struct ValuePairs<Isa, PKV_INT4> : IntegerValuePairs<Isa, PKV_INT4> {};

}  // namespace pkv::kernels
