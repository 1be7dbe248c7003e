// What the kernels ask of an instruction set. Each file in isa/ defines one such struct in its
// anonymous namespace, on an xsimd architecture of its own: every template made from it, xsimd's
// included, then has internal linkage, and the linker can never keep a copy that was compiled for a
// processor other than the one that runs it.
//
//   struct Isa {
//     using Arch = ...;                        // xsimd architecture
//     static constexpr unsigned product_rows;  // rows of a register tile of the matrix product,
//     beside 2 vectors of columns static constexpr unsigned stream_rows;   // the most rows that K
//     and V are multiplied with as they are read: 4, or 8 static F fma(F a, F b, F c);           //
//     a * b + c (xsimd 8.1 has none for AVX-512), fused where the set can static I dot_pairs(I sum,
//     U a, U b);     // sum + a.lower * b.lower + a.upper * b.upper, of signed 16-bit halves static
//     U shift_left_halves(U, int n);    // of each 16-bit half static U shift_right_halves(U, int
//     n);   // the same, of signed numbers static U widen(const void* from);        // lanes 16-bit
//     values, unaligned, to 32 bits static U widen_bytes(const void* from);  // lanes 8-bit values,
//     unaligned, to 32 bits static void narrow(void* to, U);         // the lower 16 bits of each
//     lane static F load_f16(const void* from); static void store_f16(void* to, F);      // to
//     nearest even static constexpr bool has_f16;           // these are instructions; then the set
//     has, too static U signed_bytes(const void* a, const void* b);  // lanes 8-bit values from
//     each, unaligned, sign-extended to halves static U add_halves(U, U); static float max_of(F),
//     sum_of(F);       // over the lanes; of NaN max_of makes what it likes static U
//     load_quads(const unsigned char* const* rows, int64_t offset);  // 4 words from each of
//     rows[0], rows[4], ... static void transpose_quads(U (&rows)[4]); // 4 x 4 words within each
//     128 bits
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

// Vectors that hold one value for each token of a tile, or 16 dims of a row.
template <class Isa>
inline constexpr unsigned vectors_per_tile = tile_tokens / Floats<Isa>::size;

template <class Isa>
Floats<Isa> as_floats(Words<Isa> bits) {
  return xsimd::bitwise_cast<Floats<Isa>>(bits);
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
