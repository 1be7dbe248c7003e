// fp8 as bf16, by look-ups of bytes. Every fp8 number is a bf16 number, too; one look-up finds the
// lower bytes of 64 of them, another the upper bytes.
//
// The instructions are a template parameter, so that a test can run this on CPUs that lack them:
//
//   struct Instructions {
//     static __m512i permute(__m512i order, __m512i x);  // x[order[i] % 64] for each byte i
//     // The byte at index[i] % 128 of the table for each byte i.
//     static __m512i look_up(__m512i index, __m512i lower_table, __m512i upper_table);
//   };
#pragma once

#include "kernels/isa/avx512.hpp"
#include "kernels/values.hpp"

namespace pkv::kernels {

template <class Base, class Instructions>
struct WithByteLookUp : Base {
  using ByteLookUp = Instructions;
};

// The bytes of the bf16 numbers of the 128 fp8 codes without a sign.
template <pkv_dtype dtype>
struct Bf16OfFp8 {
  using Type = Fp8<dtype>;
  alignas(64) unsigned char lower[128], upper[128];

  constexpr Bf16OfFp8() : lower(), upper() {
    for (int code = 0; code < 128; code++) {
      lower[code] = static_cast<unsigned char>(bits_of(code));
      upper[code] = static_cast<unsigned char>(bits_of(code) >> 8);
    }
  }

 private:
  static constexpr int bits_of(int code) {
    const bool has_infinity = Type::infinity != Type::nan;
    if (code > Type::largest) return has_infinity && code == Type::infinity ? 0x7F80 : 0x7FC0;
    if (code >= Type::min_normal) return ((code << Type::shift) + Type::rebias) >> 16;
    const float unit = power_of_two(1 - Type::bias - Type::mantissa_bits);
    return __builtin_bit_cast(int, static_cast<float>(code) * unit) >> 16;
  }
};

// The order of bytes in which the numbers of four runs of 16 become pairs, for the two vectors of
// pairs. A number's partner is `partner` bytes behind it, and the second vector begins `second`
// bytes behind the first. Unpacking takes the lower 8 bytes of each 128 bits for the first vector.
template <int partner, int second>
struct PairOrder {
  alignas(64) unsigned char byte[64];

  constexpr PairOrder() : byte() {
    for (int i = 0; i < 64; i++)
      byte[i] = static_cast<unsigned char>(i % 16 / 8 * second + i % 2 * partner + i / 16 * 4 +
                                           i % 8 / 2);
  }
};

// Makes pairs of bf16 from 64 fp8 numbers.
template <LooksUpBytes Isa, pkv_dtype dtype, int partner, int second>
void make_pairs(__m512i fp8, __m512i* pairs) {
  using Instructions = typename Isa::ByteLookUp;
  static constexpr Bf16OfFp8<dtype> table;
  static constexpr PairOrder<partner, second> order;
  const auto load = [](const unsigned char* bytes) { return _mm512_load_si512(bytes); };
  const __m512i x = Instructions::permute(load(order.byte), fp8);
  const __m512i lower = Instructions::look_up(x, load(table.lower), load(table.lower + 64)),
                size = Instructions::look_up(x, load(table.upper), load(table.upper + 64));
  const __m512i sign = _mm512_set1_epi8(-128),
                upper = _mm512_ternarylogic_epi32(size, x, sign, 0xF8);  // size | (x & sign)
  pairs[0] = _mm512_unpacklo_epi8(lower, upper);
  pairs[1] = _mm512_unpackhi_epi8(lower, upper);
}

// Loads 4 dims of K of 16 tokens.
template <LooksUpBytes Isa, pkv_dtype dtype>
void load_key_pairs(const unsigned char* from, __m512i (&pairs)[2]) {
  make_pairs<Isa, dtype, 16, 32>(_mm512_loadu_si512(from), pairs);
}

// Loads some vectors of dims of V of two tokens.
template <LooksUpBytes Isa, pkv_dtype dtype, unsigned vectors>
void load_value_pairs(const unsigned char* first, const unsigned char* second,
                      __m512i (&pairs)[vectors]) {
  const auto load = [](const unsigned char* from) {
    if constexpr (vectors == 1)
      return _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    else
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  };
  __m512i made[vectors + vectors % 2];
  PKV_UNROLL
  for (unsigned n = 0; n < vectors; n += 2)
    make_pairs<Isa, dtype, 32, 16>(
        _mm512_inserti64x4(_mm512_castsi256_si512(load(first + n * 16)), load(second + n * 16), 1),
        made + n);
  PKV_UNROLL
  for (unsigned n = 0; n < vectors; n++) pairs[n] = made[n];
}

// K and V in fp32.
template <LooksUpBytes Isa, pkv_dtype dtype>
  requires(is_fp8(dtype))
struct DimPairs<Isa, dtype> {
  static constexpr unsigned pairs = 2;
  Floats<Isa> even[2][1], odd[2][1];

  explicit DimPairs(const unsigned char* from) {
    __m512i words[2];
    load_key_pairs<Isa, dtype>(from, words);
    PKV_UNROLL
    for (unsigned i = 0; i < 2; i++) {
      even[i][0] = lower_bf16<Isa>(Words<Isa>(words[i]));
      odd[i][0] = upper_bf16<Isa>(Words<Isa>(words[i]));
    }
  }
};

template <LooksUpBytes Isa, pkv_dtype dtype, unsigned vectors>
  requires(is_fp8(dtype))
struct TokenPair<Isa, dtype, vectors> : FloatPair<Isa, vectors> {
  TokenPair(const unsigned char* tile, uint32_t dim, uint32_t t, uint32_t d) {
    __m512i words[vectors];
    const unsigned char* const at = tile + size_t{t} * dim + d;
    load_value_pairs<Isa, dtype>(at, at + dim, words);
    PKV_UNROLL
    for (unsigned n = 0; n < vectors; n++) {
      this->first[n] = lower_bf16<Isa>(Words<Isa>(words[n]));
      this->second[n] = upper_bf16<Isa>(Words<Isa>(words[n]));
    }
  }
};

}  // namespace pkv::kernels
