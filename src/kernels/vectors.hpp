// The operations that the kernels need from an instruction set. Each file in isa/ defines one
// struct like Isa below in its anonymous namespace, with its own xsimd architecture. All templates
// instantiated with it, including xsimd's, then have internal linkage. So the linker never keeps a
// copy that was compiled for another CPU than the one that runs it.
//
// F, U and I stand for Floats<Isa>, Words<Isa> and Ints<Isa>: vectors of lanes of 32 bits. A half
// is one of the two 16-bit parts of a lane. Addresses need no alignment.
//
//   struct Isa {
//     using Arch = ...;  // xsimd's architecture
//
//     // Rows of a register tile. In matrix products it has 2 vectors of columns beside them; K
//     // and V as they lie in their tiles are multiplied with 4 or 8 rows at most.
//     static constexpr unsigned matmul_rows, direct_rows;
//
//     // a * b + c, in one step where the set can. (xsimd 8.1 has none for AVX-512.)
//     static F fma(F a, F b, F c);
//     // sum + a.lower * b.lower + a.upper * b.upper, of halves in two's complement
//     static I dot_pairs(I sum, U a, U b);
//     static U shift_left_halves(U, int n);
//     static U shift_right_halves(U, int n);  // of halves in two's complement
//     static float max_of(F), sum_of(F);      // over the lanes; max_of is undefined with NaN
//     // A lane for the sum of each of as many vectors as there are lanes. (In xsimd 8.1, haddp
//     // returns them in a wrong order for AVX-512.)
//     static F sums_of(const F* x);
//     // Sets with 16 lanes have the two steps of it, too: four vectors become one, and four of
//     // these the sums.
//     static F quad_sums(const F* x);
//     static F sums_of_quads(const F (&quads)[4]);
//
//     static U widen(const void* from);        // one 16-bit number to each lane
//     static U widen_bytes(const void* from);  // one 8-bit number to each lane
//     static void narrow(void* to, U);         // stores the lower half of each lane
//
//     // Conversions of binary16; storing rounds to nearest even.
//     static F load_f16(const void* from);
//     static void store_f16(void* to, F);
//     // True if there are instructions for them. Then the set has these two as well:
//     static constexpr bool has_f16;
//     // Signed bytes become halves: as many from a as there are lanes, then from b.
//     static U signed_bytes(const void* a, const void* b);
//     static U add_halves(U, U);
//     // Those with AVX2 or AVX-512 have these three, too: signed bytes become halves or lanes, and
//     // 16 bytes become 32 halves, of their low 4 bits and then of their high ones.
//     static U signed_halves(const void* from);
//     static I signed_lanes(const void* from);
//     static void split_nibbles(const void* from, U (&to)[16 / F::size]);
//
//     // A transposition by blocks of 4 x 4 words: the first loads 4 words from each of rows[0],
//     // rows[4], ..., the second transposes the words of four such vectors within each 128 bits.
//     static U load_quads(const unsigned char* const* rows, int64_t offset);
//     static void transpose_quads(U (&rows)[4]);
//   };
#pragma once

#include <pagedkv/common.h>

#include <xsimd/xsimd.hpp>

#include "kernels/unroll.hpp"
#include "kernels/views.h"

namespace pkv::kernels {

template <class Isa>
using Floats = xsimd::batch<float, typename Isa::Arch>;
template <class Isa>
using Words = xsimd::batch<uint32_t, typename Isa::Arch>;
template <class Isa>
using Ints = xsimd::batch<int32_t, typename Isa::Arch>;

// The number of vectors that hold one value for each token of a tile, or 16 dims of a row.
template <class Isa>
inline constexpr unsigned vectors_per_tile = tile_tokens / Floats<Isa>::size;

// Returns the bits of a vector as a vector of another type. (xsimd's bitwise_cast calls a function
// for NEON.)
template <class To, class From>
To same_bits(From from) {
  using ToRegister = typename To::register_type;
  return To(__builtin_bit_cast(ToRegister, static_cast<typename From::register_type>(from)));
}

template <class Isa>
Floats<Isa> as_floats(Words<Isa> bits) {
  return same_bits<Floats<Isa>>(bits);
}

// The two bf16 values in each 32-bit word.
template <class Isa>
Floats<Isa> lower_bf16(Words<Isa> words) {
  return as_floats<Isa>(words << 16);
}
template <class Isa>
Floats<Isa> upper_bf16(Words<Isa> words) {
  return as_floats<Isa>(words & Words<Isa>(0xFFFF0000u));
}

template <class Isa>
Words<Isa> load_words(const void* from) {
  return Words<Isa>::load_unaligned(static_cast<const uint32_t*>(from));
}

}  // namespace pkv::kernels
