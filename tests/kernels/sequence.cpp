#include "sequence.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "reference.h"

namespace pkv::kernels::test {

namespace {

uint32_t random_dim(Random& random) {
  constexpr uint32_t usual[] = {16, 32, 48, 64, 80, 128, 96, 112, 192, 256, 512, 576};
  return usual[pick(random, 0, pick(random, 0, 5) == 0 ? std::size(usual) - 1 : 5)];
}

// Returns how many elements lie together in a packed tile: p in the description of
// PKV_LAYOUT_PACKED.
uint64_t together(pkv_dtype dtype) {
  return dtype == PKV_BF16 ? 2 : dtype == PKV_INT8 ? 4 : dtype == PKV_INT4 ? 8 : 1;
}

uint32_t scales_of(pkv_dtype dtype, uint32_t dim) {
  return dtype == PKV_INT8 ? 1 : dtype == PKV_INT4 ? (dim + 31) / 32 : 0;
}

int64_t row_bytes(pkv_dtype dtype, uint32_t dim) {
  return dim * bits_of(dtype) / 8 + scales_of(dtype, dim) * (dtype == PKV_INT8 ? 4u : 2u);
}

int64_t tile_bytes(pkv_dtype dtype, uint32_t dim) {
  return (16 * row_bytes(dtype, dim) + 63) / 64 * 64;
}

}  // namespace

Shape random_shape(Random& random, pkv_layout layout, pkv_dtype k_dtype, pkv_dtype v_dtype) {
  Shape shape{};
  shape.layout = layout;
  shape.k_dtype = k_dtype;
  shape.v_dtype = v_dtype;
  shape.kv_heads = static_cast<uint32_t>(pick(random, 1, 3));
  shape.heads_per_kv_head =
      static_cast<uint32_t>(pick(random, 1, pick(random, 0, 4) == 0 ? 20 : 5));
  shape.key_dim = random_dim(random);
  shape.value_dim = random_dim(random);
  shape.latent = k_dtype == v_dtype && pick(random, 0, 1) == 0;
  if (shape.latent && shape.value_dim > shape.key_dim) std::swap(shape.key_dim, shape.value_dim);
  shape.block_size = static_cast<uint32_t>(layout == PKV_LAYOUT_PACKED ? 16 * pick(random, 1, 4)
                                                                       : pick(random, 1, 40));
  shape.paged = pick(random, 0, 3) != 0;
  shape.length = pick(random, 1, pick(random, 0, 1) == 0 ? 20 : 200);
  return shape;
}

Sequence::Sequence(const Shape& shape_of, Random& random, unsigned char garbage) : shape(shape_of) {
  at_[0] = {shape.k_dtype, shape.key_dim, 0, 0, 0, 0};
  at_[1] = {shape.v_dtype, shape.value_dim, 0, 0, 0, 0};
  Place &k = at_[0], &v = at_[1];
  const int64_t heads = shape.kv_heads;
  const uint64_t used = shape.paged ? (shape.length + shape.block_size - 1) / shape.block_size : 1,
                 capacity = used + 2;
  const int64_t slots =
      static_cast<int64_t>(shape.paged ? shape.block_size : (shape.length + 15) / 16 * 16);
  size_t size = 0;
  // The layout is [block][layer][tile][head][K tile | V tile], and this is one of three layers.
  if (shape.layout == PKV_LAYOUT_PACKED) {
    const int64_t k_tile = tile_bytes(k.dtype, k.dim),
                  v_tile = shape.latent ? 0 : tile_bytes(v.dtype, v.dim);
    k.begin = static_cast<size_t>(pick(random, 0, 1)) * 64;
    v.begin = k.begin + static_cast<size_t>(k_tile);
    k.head_stride = v.head_stride = k_tile + v_tile;
    k.row_stride = v.row_stride = heads * k.head_stride;
    k.block_stride = v.block_stride = 3 * slots / 16 * k.row_stride;
    size = v.begin + capacity * static_cast<size_t>(k.block_stride);
  } else {
    // These are two tensors with some space between rows.
    for (Place* const side : {&k, &v}) {
      const auto gap = [&] {
        return static_cast<int64_t>(pick(random, 0, 3) * std::max(1u, bits_of(side->dtype) / 8));
      };
      side->begin = size + static_cast<size_t>(pick(random, 0, 63));
      side->head_stride = row_bytes(side->dtype, side->dim) + gap();
      side->row_stride = heads * side->head_stride + gap();
      side->block_stride = slots * side->row_stride;
      size = side->begin + capacity * static_cast<size_t>(side->block_stride);
      if (shape.latent) break;
    }
  }
  blocks_.resize(capacity);
  std::iota(blocks_.begin(), blocks_.end(), 0u);
  std::shuffle(blocks_.begin(), blocks_.end(), random);
  blocks_.resize(used);
  bytes.assign(size + 64, garbage);
}

SideView Sequence::side_view(const Place& place) {
  return {bytes.data() + place.begin, place.block_stride, place.row_stride,
          place.head_stride,          place.dtype,        place.dim};
}

KvView Sequence::view() {
  KvView kv{};
  kv.k = side_view(at_[0]);
  kv.v = side_view(at_[1]);
  if (shape.latent) kv.v.data = nullptr;
  kv.blocks = shape.paged ? blocks_.data() : nullptr;
  kv.block_size = shape.paged ? shape.block_size : 0;
  kv.kv_heads = shape.kv_heads;
  kv.layout = shape.layout;
  return kv;
}

uint64_t Sequence::block_of(uint64_t position) const {
  return shape.paged ? blocks_[position / shape.block_size] : 0;
}
uint64_t Sequence::offset_of(uint64_t position) const {
  return shape.paged ? position % shape.block_size : position;
}

size_t Sequence::unit_begin(const Place& place, uint64_t position, uint32_t head) const {
  const uint64_t unit =
      shape.layout == PKV_LAYOUT_PACKED ? offset_of(position) / 16 : offset_of(position);
  return place.begin + block_of(position) * static_cast<uint64_t>(place.block_stride) +
         unit * static_cast<uint64_t>(place.row_stride) +
         head * static_cast<uint64_t>(place.head_stride);
}

uint64_t Sequence::element_index(Side side, uint64_t position, uint32_t d) const {
  const Place& place = at_[index(side)];
  const uint64_t p = together(place.dtype), t = offset_of(position) % 16;
  if (shape.layout == PKV_LAYOUT_PLAIN) return d;
  if (index(side) == 0) return (d / p * 16 + t) * p + d % p;
  if (p == 1) return t * place.dim + d;
  return (t / p * place.dim + d) * p + t % p / 2 + t % 2 * (p / 2);
}

uint32_t Sequence::bits(Side side, uint64_t position, uint32_t head, uint32_t d) const {
  const Place& place = at_[index(side)];
  const uint64_t i = element_index(side, position, d);
  const unsigned char* const at =
      &bytes[unit_begin(place, position, head) + i * bits_of(place.dtype) / 8];
  if (place.dtype == PKV_INT4) return *at >> (i % 2 * 4) & 15u;
  return read_bits(place.dtype, at);
}

void Sequence::set_bits(Side side, uint64_t position, uint32_t head, uint32_t d, uint32_t bits) {
  const Place& place = at_[index(side)];
  const uint64_t i = element_index(side, position, d);
  unsigned char* const at =
      &bytes[unit_begin(place, position, head) + i * bits_of(place.dtype) / 8];
  if (place.dtype == PKV_INT4)
    *at = static_cast<unsigned char>(i % 2 == 0 ? (*at & 0xF0u) | bits : (*at & 0x0Fu) | bits << 4);
  else
    write_bits(place.dtype, at, bits);
}

uint32_t Sequence::scales(Side side) const {
  return scales_of(at_[index(side)].dtype, at_[index(side)].dim);
}

size_t Sequence::scale_place(Side side, uint64_t position, uint32_t head, uint32_t scale) const {
  const Place& place = at_[index(side)];
  const uint64_t rows = shape.layout == PKV_LAYOUT_PACKED ? 16 : 1, t = offset_of(position) % rows;
  return unit_begin(place, position, head) + rows * place.dim * bits_of(place.dtype) / 8 +
         (scale * rows + t) * bits_of(scale_dtype(side)) / 8;
}

uint32_t Sequence::scale_bits(Side side, uint64_t position, uint32_t head, uint32_t scale) const {
  return read_bits(scale_dtype(side), &bytes[scale_place(side, position, head, scale)]);
}
void Sequence::set_scale_bits(Side side, uint64_t position, uint32_t head, uint32_t scale,
                              uint32_t bits) {
  write_bits(scale_dtype(side), &bytes[scale_place(side, position, head, scale)], bits);
}

double Sequence::value(Side side, uint64_t position, uint32_t head, uint32_t d) const {
  const double number = decode(dtype(side), bits(side, position, head, d));
  if (!is_integer(dtype(side))) return number;
  return number * decode(scale_dtype(side), scale_bits(side, position, head, scale_of(side, d)));
}

void Sequence::fill(Random& random) {
  for (const Side side : sides) {
    if (side == Side::V && shape.latent) break;
    const pkv_dtype type = dtype(side);
    // The largest scale. The lowest code times this is 1.
    const double range = type == PKV_INT8 ? 0x1p-7 : 0x1p-3;
    for (uint64_t position = 0; position < shape.length; position++) {
      for (uint32_t head = 0; head < shape.kv_heads; head++) {
        for (uint32_t d = 0; d < dim(side); d++)
          set_bits(side, position, head, d,
                   is_integer(type)
                       ? static_cast<uint32_t>(pick(random, 0, (1u << bits_of(type)) - 1))
                       : encode(type, real(random)));
        for (uint32_t i = 0; i < scales(side); i++)
          set_scale_bits(side, position, head, i,
                         encode(scale_dtype(side), range * std::fabs(real(random))));
      }
    }
  }
}

void Sequence::put(Side side, uint64_t position, uint32_t head, uint32_t d, double number) {
  if (is_integer(dtype(side)) && std::isnan(number))
    set_scale_bits(side, position, head, scale_of(side, d), encode(scale_dtype(side), number));
  else
    set_bits(side, position, head, d, encode(dtype(side), number));
}

void Sequence::copy_row(Side side, uint64_t position, uint32_t head, const Sequence& from,
                        uint64_t from_position) {
  for (uint32_t d = 0; d < at_[index(side)].dim; d++)
    set_bits(side, position, head, d, from.bits(side, from_position, head, d));
  for (uint32_t i = 0; i < scales(side); i++)
    set_scale_bits(side, position, head, i, from.scale_bits(side, from_position, head, i));
}

Decoded Sequence::decoded(uint32_t head) const {
  Decoded result;
  for (uint64_t position = 0; position < shape.length; position++) {
    for (uint32_t d = 0; d < shape.key_dim; d++)
      result.k.push_back(value(Side::K, position, head, d));
    for (uint32_t d = 0; d < shape.value_dim; d++)
      result.v.push_back(value(Side::V, position, head, d));
    for (uint32_t d = 0; d < shape.value_dim && !shape.latent && is_integer(shape.v_dtype); d++)
      result.v_scale.push_back(
          decode(scale_dtype(Side::V), scale_bits(Side::V, position, head, scale_of(Side::V, d))));
  }
  return result;
}

Rows::Rows(pkv_dtype type, uint64_t row_count, uint32_t head_count, uint32_t dims)
    : dtype(type),
      rows(row_count),
      heads(head_count),
      dim(dims),
      row_stride_(int64_t{head_count} * dims),
      head_stride_(dims),
      begin_(0) {
  allocate();
}

Rows::Rows(pkv_dtype type, uint64_t row_count, uint32_t head_count, uint32_t dims, Random& random)
    : dtype(type), rows(row_count), heads(head_count), dim(dims) {
  head_stride_ = dim + static_cast<int64_t>(pick(random, 0, 3));
  row_stride_ = heads * head_stride_ + static_cast<int64_t>(pick(random, 0, 5));
  begin_ = static_cast<size_t>(pick(random, 0, 9));
  allocate();
}

void Rows::allocate() {
  bytes.assign(begin_ + rows * static_cast<size_t>(row_stride_) * dtype_bytes(dtype) + 64, 0xA5);
}

RowsView Rows::view() { return {bytes.data() + begin_, dtype, row_stride_, head_stride_}; }

size_t Rows::at(uint64_t row, uint32_t head, uint32_t d) const {
  return begin_ +
         static_cast<size_t>(static_cast<int64_t>(row) * row_stride_ + head * head_stride_ + d) *
             dtype_bytes(dtype);
}
uint32_t Rows::bits(uint64_t row, uint32_t head, uint32_t d) const {
  return read_bits(dtype, bytes.data() + at(row, head, d));
}
double Rows::value(uint64_t row, uint32_t head, uint32_t d) const {
  return decode(dtype, bits(row, head, d));
}
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

}  // namespace pkv::kernels::test
