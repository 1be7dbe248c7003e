// Transposes 16 rows of 32-bit words: word w of row t goes to word w * 16 + t. Packed K is plain K
// transposed in this way.
#pragma once

#include "kernels/vectors.hpp"

namespace pkv::kernels {

// Transposes words [word, word + 4) of the 16 rows.
template <class Isa>
void transpose_four_words(const unsigned char* const* rows, uint32_t word, unsigned char* to) {
  constexpr unsigned lanes = Words<Isa>::size;
  for (unsigned t = 0; t < tile_tokens; t += lanes) {
    Words<Isa> words[4];
    for (unsigned j = 0; j < 4; j++) words[j] = Isa::load_quads(rows + t + j, int64_t{word} * 4);
    Isa::transpose_quads(words);
    for (unsigned j = 0; j < 4; j++)
      words[j].store_unaligned(reinterpret_cast<uint32_t*>(to) + j * tile_tokens + t);
  }
}

template <class Isa>
void transpose(const unsigned char* const* rows, uint32_t words, unsigned char* to) {
  for (uint32_t word = 0; word < words; word += 4, to += 4 * tile_tokens * 4)
    transpose_four_words<Isa>(rows, word, to);
}

}  // namespace pkv::kernels
