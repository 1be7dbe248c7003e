// Products of matrices in bf16 parts, by a matrix unit.
//
// The unit is a template parameter, so that a test can run all of this on CPUs that lack it:
//
//   struct Unit {
//     class KeptConfig;                // as long as one lives, the thread may use the unit
//     static void configure(const RegisterShapes&);
//     template <int r> static void zero();
//     template <int r> static void load(const void* from, size_t stride);
//     template <int r> static void store(void* to, size_t stride);
//     // c += a * b: a has rows of up to 32 numbers, b as many rows of 16 pairs as a has pairs
//     template <int c, int a, int b> static void multiply();
//     static __m256i round(__m512);  // to the nearest bf16 numbers
//   };
#pragma once

#include "kernels/isa/bf16_parts.hpp"

namespace pkv::kernels {

// The sizes of the registers. A register without rows is not used.
struct RegisterShapes {
  uint8_t rows[8], row_bytes[8];
};

// The left factor of a product, in parts of rows. Distances are bytes.
template <class Unit>
struct LeftParts {
  const unsigned char* data;
  size_t part;  // from one part to the next
  size_t row;   // from one row to the next
};

// The right factor, in parts of columns: blocks of 16 columns are [depth / 2][16 columns][2], and
// lie anywhere.
template <class Unit>
struct RightParts {
  const unsigned char* const* blocks;
  size_t part;
};

// The pairs of parts that are multiplied: those whose numbers add up to at most `last`.
template <class Unit>
struct PartPairs {
  struct Pair {
    uint8_t left, right;
  };
  Pair pairs[max_parts * max_parts];
  unsigned count = 0;

  PartPairs(unsigned left, unsigned right, unsigned last) {
    for (unsigned l = 0; l < left; l++)
      for (unsigned r = 0; r < right && l + r <= last; r++)
        pairs[count++] = {static_cast<uint8_t>(l), static_cast<uint8_t>(r)};
  }
};

// The numbers of a row that one tile register takes.
inline constexpr uint32_t unit_depth = 32;
inline constexpr uint32_t unit_rows = 16;

// c (+)= left * right for a block of at most 32 rows and `columns` blocks of 16 columns, 1 or 2.
// The depth is `depth` times unit_depth. Rows of c are c_stride floats apart. meanwhile() is called
// after a few products.
template <class Unit, bool bottom, unsigned columns, bool add, class Meanwhile>
[[gnu::noinline]] void multiply_block(const PartPairs<Unit>& pairs, const LeftParts<Unit>& left,
                                      const RightParts<Unit>& right, uint32_t depth, float* c,
                                      size_t c_stride, const Meanwhile& meanwhile) {
  const size_t c_bytes = c_stride * sizeof(float);
  float* const c_bottom = c + unit_rows * c_stride;
  if constexpr (add) {
    Unit::template load<0>(c, c_bytes);
    if constexpr (columns == 2) Unit::template load<1>(c + tile_tokens, c_bytes);
    if constexpr (bottom) Unit::template load<2>(c_bottom, c_bytes);
    if constexpr (bottom && columns == 2) Unit::template load<3>(c_bottom + tile_tokens, c_bytes);
  } else {
    Unit::template zero<0>();
    if constexpr (columns == 2) Unit::template zero<1>();
    if constexpr (bottom) Unit::template zero<2>();
    if constexpr (bottom && columns == 2) Unit::template zero<3>();
  }
  for (uint32_t k = 0; k < depth; k++) {
    for (unsigned i = 0; i < pairs.count; i++) {
      const auto [l, r] = pairs.pairs[i];
      const unsigned char* const a = left.data + l * left.part + k * unit_depth * 2;
      const size_t of_b = r * right.part + k * unit_depth * 32;
      if (i == 0 || l != pairs.pairs[i - 1].left) {
        Unit::template load<4>(a, left.row);
        if constexpr (bottom) Unit::template load<5>(a + unit_rows * left.row, left.row);
      }
      Unit::template load<6>(right.blocks[0] + of_b, 64);
      Unit::template multiply<0, 4, 6>();
      if constexpr (bottom) Unit::template multiply<2, 5, 6>();
      if constexpr (columns == 2) {
        Unit::template load<7>(right.blocks[1] + of_b, 64);
        Unit::template multiply<1, 4, 7>();
        if constexpr (bottom) Unit::template multiply<3, 5, 7>();
      }
      meanwhile();
    }
  }
  Unit::template store<0>(c, c_bytes);
  if constexpr (columns == 2) Unit::template store<1>(c + tile_tokens, c_bytes);
  if constexpr (bottom) Unit::template store<2>(c_bottom, c_bytes);
  if constexpr (bottom && columns == 2) Unit::template store<3>(c_bottom + tile_tokens, c_bytes);
}

// The same if the number of rows and the number of blocks of columns are not constants.
template <class Unit, bool add, class Meanwhile>
void multiply_blocks(const PartPairs<Unit>& pairs, const LeftParts<Unit>& left,
                     RightParts<Unit> right, uint32_t rows, uint32_t columns, uint32_t depth,
                     float* c, size_t c_stride, const Meanwhile& meanwhile) {
  const auto multiply = [&]<bool bottom, unsigned n>() {
    multiply_block<Unit, bottom, n, add>(pairs, left, right, depth, c, c_stride, meanwhile);
  };
  for (; columns >= 2; columns -= 2, right.blocks += 2, c += 2 * tile_tokens)
    rows > unit_rows ? multiply.template operator()<true, 2>()
                     : multiply.template operator()<false, 2>();
  if (columns == 1)
    rows > unit_rows ? multiply.template operator()<true, 1>()
                     : multiply.template operator()<false, 1>();
}

}  // namespace pkv::kernels
