#include "sequence.h"

#include <algorithm>
#include <numeric>

#include "reference.h"

namespace pkv::test {

namespace {

uint32_t random_dim(Random& random) {
  constexpr uint32_t usual[] = {16, 32, 48, 64, 80, 96, 112, 128, 192, 256, 576};
  return usual[pick(random, 0, pick(random, 0, 3) == 0 ? std::size(usual) - 1 : 5)];
}

}  // namespace

Shape random_shape(Random& random, pkv_layout layout, pkv_dtype dtype) {
  Shape shape{};
  shape.layout = layout;
  shape.dtype = dtype;
  shape.kv_heads = static_cast<uint32_t>(pick(random, 1, 3));
  shape.group = static_cast<uint32_t>(pick(random, 1, 7));
  shape.key_dim = random_dim(random);
  shape.value_dim = random_dim(random);
  shape.block_size = static_cast<uint32_t>(layout == PKV_LAYOUT_PACKED ? 16 * pick(random, 1, 4) : pick(random, 1, 40));
  shape.paged = pick(random, 0, 3) != 0;
  shape.length = pick(random, 1, pick(random, 0, 1) == 0 ? 20 : 150);
  return shape;
}

Sequence::Sequence(const Shape& shape_of, Random& random, unsigned char garbage)
    : shape(shape_of), element_(dtype_bytes(shape_of.dtype)) {
  const int64_t k_dim = shape.key_dim * element_, v_dim = shape.value_dim * element_, heads = shape.kv_heads;
  const uint64_t used = shape.paged ? (shape.length + shape.block_size - 1) / shape.block_size : 1;
  const int64_t slots = static_cast<int64_t>(shape.paged ? shape.block_size : (shape.length + 15) / 16 * 16);
  if (shape.layout == PKV_LAYOUT_PACKED) {  // [block][layer][tile][head][K tile | V tile], this being one of three layers
    k_head_stride_ = v_head_stride_ = tile_tokens * (k_dim + v_dim);
    k_row_stride_ = v_row_stride_ = heads * k_head_stride_;
    k_block_stride_ = v_block_stride_ = 3 * slots / tile_tokens * k_row_stride_;
  } else {  // two tensors, with some space between rows
    k_head_stride_ = k_dim + static_cast<int64_t>(pick(random, 0, 3) * element_);
    v_head_stride_ = v_dim;
    k_row_stride_ = heads * k_head_stride_;
    v_row_stride_ = heads * v_head_stride_ + static_cast<int64_t>(pick(random, 0, 3) * element_);
    k_block_stride_ = slots * k_row_stride_;
    v_block_stride_ = slots * v_row_stride_;
  }
  const uint64_t capacity = used + 2;
  blocks_.resize(capacity);
  std::iota(blocks_.begin(), blocks_.end(), 0u);
  std::shuffle(blocks_.begin(), blocks_.end(), random);
  blocks_.resize(used);

  k_begin_ =
      shape.layout == PKV_LAYOUT_PACKED ? static_cast<size_t>(pick(random, 0, 1)) * 64 : static_cast<size_t>(pick(random, 0, 63));
  if (shape.layout == PKV_LAYOUT_PACKED)
    v_begin_ = k_begin_ + static_cast<size_t>(tile_tokens * k_dim);
  else
    v_begin_ = k_begin_ + capacity * static_cast<size_t>(k_block_stride_) + static_cast<size_t>(pick(random, 0, 63));
  bytes.assign(v_begin_ + capacity * static_cast<size_t>(v_block_stride_) + 64, garbage);
}

KvView Sequence::view() {
  return {bytes.data() + k_begin_,
          bytes.data() + v_begin_,
          k_block_stride_,
          k_row_stride_,
          k_head_stride_,
          v_block_stride_,
          v_row_stride_,
          v_head_stride_,
          shape.paged ? blocks_.data() : nullptr,
          shape.paged ? shape.block_size : 0,
          shape.kv_heads,
          shape.key_dim,
          shape.value_dim};
}

uint64_t Sequence::block_of(uint64_t position) const { return shape.paged ? blocks_[position / shape.block_size] : 0; }
uint64_t Sequence::offset_of(uint64_t position) const { return shape.paged ? position % shape.block_size : position; }

unsigned char* Sequence::k(uint64_t position, uint32_t head, uint32_t dim) {
  const uint64_t p = shape.dtype == PKV_BF16 ? 2 : 1, t = offset_of(position) % 16;
  unsigned char* block = bytes.data() + k_begin_ + block_of(position) * static_cast<uint64_t>(k_block_stride_) +
                         head * static_cast<uint64_t>(k_head_stride_);
  if (shape.layout == PKV_LAYOUT_PLAIN)
    return block + offset_of(position) * static_cast<uint64_t>(k_row_stride_) + dim * element_;
  return block + offset_of(position) / 16 * static_cast<uint64_t>(k_row_stride_) + ((dim / p * 16 + t) * p + dim % p) * element_;
}

unsigned char* Sequence::v(uint64_t position, uint32_t head, uint32_t dim) {
  const uint64_t p = shape.dtype == PKV_BF16 ? 2 : 1, t = offset_of(position) % 16;
  unsigned char* block = bytes.data() + v_begin_ + block_of(position) * static_cast<uint64_t>(v_block_stride_) +
                         head * static_cast<uint64_t>(v_head_stride_);
  if (shape.layout == PKV_LAYOUT_PLAIN)
    return block + offset_of(position) * static_cast<uint64_t>(v_row_stride_) + dim * element_;
  return block + offset_of(position) / 16 * static_cast<uint64_t>(v_row_stride_) +
         ((t / p * shape.value_dim + dim) * p + t % p) * element_;
}

void Sequence::fill(Random& random) {
  for (uint64_t position = 0; position < shape.length; position++) {
    for (uint32_t head = 0; head < shape.kv_heads; head++) {
      for (uint32_t d = 0; d < shape.key_dim; d++)
        write_bits(shape.dtype, k(position, head, d), encode(shape.dtype, real(random)));
      for (uint32_t d = 0; d < shape.value_dim; d++)
        write_bits(shape.dtype, v(position, head, d), encode(shape.dtype, real(random)));
    }
  }
}

std::vector<std::vector<double>> Sequence::k_rows(uint32_t head, uint64_t begin, uint64_t end) {
  std::vector<std::vector<double>> rows;
  for (uint64_t position = begin; position < end; position++) {
    rows.emplace_back(shape.key_dim);
    for (uint32_t d = 0; d < shape.key_dim; d++)
      rows.back()[d] = decode(shape.dtype, read_bits(shape.dtype, k(position, head, d)));
  }
  return rows;
}

std::vector<std::vector<double>> Sequence::v_rows(uint32_t head, uint64_t begin, uint64_t end) {
  std::vector<std::vector<double>> rows;
  for (uint64_t position = begin; position < end; position++) {
    rows.emplace_back(shape.value_dim);
    for (uint32_t d = 0; d < shape.value_dim; d++)
      rows.back()[d] = decode(shape.dtype, read_bits(shape.dtype, v(position, head, d)));
  }
  return rows;
}

Rows::Rows(pkv_dtype type, uint64_t row_count, uint32_t head_count, uint32_t dims, Random& random)
    : dtype(type), rows(row_count), heads(head_count), dim(dims) {
  head_stride_ = dim + static_cast<int64_t>(pick(random, 0, 3));
  row_stride_ = heads * head_stride_ + static_cast<int64_t>(pick(random, 0, 5));
  begin_ = static_cast<size_t>(pick(random, 0, 9));
  bytes.assign(begin_ + rows * static_cast<size_t>(row_stride_) * dtype_bytes(dtype) + 64, 0xA5);
}

RowsView Rows::view() { return {bytes.data() + begin_, dtype, row_stride_, head_stride_}; }

size_t Rows::at(uint64_t row, uint32_t head, uint32_t d) const {
  return begin_ + static_cast<size_t>(static_cast<int64_t>(row) * row_stride_ + head * head_stride_ + d) * dtype_bytes(dtype);
}
uint32_t Rows::bits(uint64_t row, uint32_t head, uint32_t d) const { return read_bits(dtype, bytes.data() + at(row, head, d)); }
void Rows::set_bits(uint64_t row, uint32_t head, uint32_t d, uint32_t value) {
  write_bits(dtype, bytes.data() + at(row, head, d), value);
}

void Rows::fill(Random& random) {
  for (uint64_t row = 0; row < rows; row++)
    for (uint32_t head = 0; head < heads; head++)
      for (uint32_t d = 0; d < dim; d++) set_bits(row, head, d, encode(dtype, real(random)));
}

void Rows::fill_bits(Random& random) {
  for (uint64_t row = 0; row < rows; row++)
    for (uint32_t head = 0; head < heads; head++)
      for (uint32_t d = 0; d < dim; d++) set_bits(row, head, d, static_cast<uint32_t>(random()));
}

}  // namespace pkv::test
