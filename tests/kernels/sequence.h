// A sequence in the test's own memory, in either layout. Addresses of elements follow the
// definition in the C header, not the kernels. Bytes that hold no element in use are garbage.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "../support/enums.h"
#include "kernels/kernels.h"

namespace pkv::kernels::test {

// SplitMix64, in a quarter of the time of std::mt19937_64.
class Random {
 public:
  using result_type = uint64_t;
  explicit Random(uint64_t seed) : state_(seed) {}
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return UINT64_MAX; }
  uint64_t operator()() {
    uint64_t x = state_ += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }

 private:
  uint64_t state_;
};

inline uint64_t pick(Random& random, uint64_t from, uint64_t to) {
  return std::uniform_int_distribution<uint64_t>(from, to)(random);
}
inline pkv_dtype pick_dtype(Random& random) {
  return pkv::test::stored_dtypes[pick(random, 0, std::size(pkv::test::stored_dtypes) - 1)];
}
inline float real(Random& random) {
  return static_cast<float>(static_cast<int64_t>(random()) >> 39) * 0x1p-24f;
}

struct Shape {
  pkv_layout layout;
  // Both are the same if latent.
  pkv_dtype k_dtype, v_dtype;
  uint32_t kv_heads, heads_per_kv_head, key_dim, value_dim;
  uint32_t block_size;
  // False means one run of tokens without a block table.
  bool paged;
  // V is the first value_dim dims of K.
  bool latent;
  uint64_t length;
};

Shape random_shape(Random& random, pkv_layout layout, pkv_dtype k_dtype, pkv_dtype v_dtype);

enum class Side { K, V };
inline constexpr Side sides[] = {Side::K, Side::V};

// K and V of one head in double precision, [position][dim]. v_scale is empty if V has no scales.
struct Decoded {
  std::vector<double> k, v, v_scale;
};

class Sequence {
 public:
  Sequence(const Shape& shape, Random& random, unsigned char garbage);

  const Shape shape;
  KvView view();

  pkv_dtype dtype(Side side) const { return at_[index(side)].dtype; }
  uint32_t dim(Side side) const { return side == Side::K ? shape.key_dim : shape.value_dim; }

  uint32_t bits(Side side, uint64_t position, uint32_t head, uint32_t dim) const;
  void set_bits(Side side, uint64_t position, uint32_t head, uint32_t dim, uint32_t bits);

  // Returns the number of scales of a row: none, one (INT8, in fp32) or one per 32 dims (INT4, in
  // bf16).
  uint32_t scales(Side side) const;
  pkv_dtype scale_dtype(Side side) const { return dtype(side) == PKV_INT8 ? PKV_F32 : PKV_BF16; }
  uint32_t scale_of(Side side, uint32_t dim) const {
    return dtype(side) == PKV_INT8 ? 0 : dim / 32;
  }
  uint32_t scale_bits(Side side, uint64_t position, uint32_t head, uint32_t scale) const;
  void set_scale_bits(Side side, uint64_t position, uint32_t head, uint32_t scale, uint32_t bits);

  // Returns the number that an element and its scale stand for.
  double value(Side side, uint64_t position, uint32_t head, uint32_t dim) const;

  // Fills positions [0, length) with random numbers in [-1, 1] of the stored dtypes, without the
  // kernels.
  void fill(Random& random);

  // Sets an element to `number`, without its scale. In dtypes with scales a NaN goes into the
  // scale, so that all elements that share it become NaN.
  void put(Side side, uint64_t position, uint32_t head, uint32_t dim, double number);

  // Copies one row bit by bit.
  void copy_row(Side side, uint64_t position, uint32_t head, const Sequence& from,
                uint64_t from_position);

  Decoded decoded(uint32_t head) const;

  std::vector<unsigned char> bytes;  // The whole memory.

 private:
  struct Place {  // Where K or V lies.
    pkv_dtype dtype;
    uint32_t dim;
    size_t begin;
    int64_t block_stride, row_stride, head_stride;
  };

  // V of a latent sequence is K.
  size_t index(Side side) const { return side == Side::K || shape.latent ? 0 : 1; }
  SideView side_view(const Place& place);
  uint64_t block_of(uint64_t position) const;
  uint64_t offset_of(uint64_t position) const;
  // Returns where the row of a position begins, or its tile.
  size_t unit_begin(const Place& place, uint64_t position, uint32_t head) const;
  // Returns the index of an element from there on.
  uint64_t element_index(Side side, uint64_t position, uint32_t dim) const;
  size_t scale_place(Side side, uint64_t position, uint32_t head, uint32_t scale) const;

  Place at_[2];
  std::vector<uint32_t> blocks_;
};

// A caller's rows [rows][heads][dim].
class Rows {
 public:
  // Makes dense rows.
  Rows(pkv_dtype dtype, uint64_t rows, uint32_t heads, uint32_t dim);
  // Makes rows with gaps between heads and rows, at any address.
  Rows(pkv_dtype dtype, uint64_t rows, uint32_t heads, uint32_t dim, Random& random);

  RowsView view();
  uint32_t bits(uint64_t row, uint32_t head, uint32_t dim) const;
  double value(uint64_t row, uint32_t head, uint32_t dim) const;
  void set_bits(uint64_t row, uint32_t head, uint32_t dim, uint32_t bits);

  const pkv_dtype dtype;
  const uint64_t rows;
  const uint32_t heads, dim;
  std::vector<unsigned char> bytes;

  // Fills with numbers in [-1, 1].
  void fill(Random& random);
  // Fills with any bits: NaN, infinities, denormals.
  void fill_bits(Random& random);

 private:
  void allocate();
  size_t at(uint64_t row, uint32_t head, uint32_t dim) const;
  int64_t row_stride_, head_stride_;
  size_t begin_;
};

}  // namespace pkv::kernels::test
