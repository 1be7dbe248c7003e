// A sequence in memory of the test's own, in either layout: element addresses come from the definition in the C header,
// not from the kernels. Bytes that hold no element in use are garbage.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/kernels.h"

namespace pkv::test {

using Random = std::mt19937_64;

inline uint64_t pick(Random& random, uint64_t from, uint64_t to) {
  return std::uniform_int_distribution<uint64_t>(from, to)(random);
}
inline float real(Random& random) { return std::uniform_real_distribution<float>(-1.0f, 1.0f)(random); }

struct Shape {
  pkv_layout layout;
  pkv_dtype dtype;
  uint32_t kv_heads, group, key_dim, value_dim;
  uint32_t block_size;
  bool paged;  // false: one run of tokens, no block table
  uint64_t length;
};

Shape random_shape(Random& random, pkv_layout layout, pkv_dtype dtype);

class Sequence {
 public:
  Sequence(const Shape& shape, Random& random, unsigned char garbage);

  const Shape shape;
  KvView view();

  unsigned char* k(uint64_t position, uint32_t head, uint32_t dim);
  unsigned char* v(uint64_t position, uint32_t head, uint32_t dim);

  // Fills positions [0, length) with random numbers of the stored type, bypassing the kernels.
  void fill(Random& random);

  std::vector<std::vector<double>> k_rows(uint32_t head, uint64_t begin, uint64_t end);
  std::vector<std::vector<double>> v_rows(uint32_t head, uint64_t begin, uint64_t end);

  std::vector<unsigned char> bytes;  // all of it

 private:
  uint64_t block_of(uint64_t position) const;
  uint64_t offset_of(uint64_t position) const;

  unsigned element_;
  size_t k_begin_, v_begin_;
  int64_t k_block_stride_, k_row_stride_, k_head_stride_, v_block_stride_, v_row_stride_, v_head_stride_;
  std::vector<uint32_t> blocks_;
};

// A caller's rows [rows][heads][dim], with gaps between heads and rows, at any address.
class Rows {
 public:
  Rows(pkv_dtype dtype, uint64_t rows, uint32_t heads, uint32_t dim, Random& random);

  RowsView view();
  uint32_t bits(uint64_t row, uint32_t head, uint32_t dim) const;
  void set_bits(uint64_t row, uint32_t head, uint32_t dim, uint32_t bits);

  const pkv_dtype dtype;
  const uint64_t rows;
  const uint32_t heads, dim;
  std::vector<unsigned char> bytes;

  void fill(Random& random);       // numbers in [-1, 1]
  void fill_bits(Random& random);  // any bits: NaN, infinities, denormals

 private:
  size_t at(uint64_t row, uint32_t head, uint32_t dim) const;
  int64_t row_stride_, head_stride_;
  size_t begin_;
};

}  // namespace pkv::test
