// Copies tiles byte by byte if both sides are packed, or else with the kernels.
#include "engine/file/tiles.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/checked.h"
#include "kernels/tile_layout.h"

namespace pkv::file {

namespace {

uint64_t head_bytes(const memory::Shape& shape) {
  return uint64_t{kernels::tile_bytes(shape.dtype, shape.key_dim)} +
         (shape.latent() ? 0 : kernels::tile_bytes(shape.value_dtype, shape.value_dim));
}

// Returns a view of a tile of a file, for the kernels. It has no rotation: what is stored is
// copied.
kernels::KvView file_view(const memory::Shape& shape, unsigned char* bytes) {
  kernels::KvView view{};
  view.layout = PKV_LAYOUT_PACKED;
  view.kv_heads = shape.kv_heads;
  view.block_size = kernels::tile_tokens;
  const int64_t head = static_cast<int64_t>(head_bytes(shape)), row = head * shape.kv_heads;
  view.k = {bytes, row, row, head, shape.dtype, shape.key_dim, {}};
  view.v = {shape.latent() ? nullptr : bytes + kernels::tile_bytes(shape.dtype, shape.key_dim),
            row,
            row,
            head,
            shape.value_dtype,
            shape.value_dim,
            {}};
  return view;
}

// Returns where the tile of the first KV head is in the cache if its bytes have the same order
// there; else nullptr. Those of the others follow by the view's head_stride.
unsigned char* packed_bytes(const kernels::KvView& view, uint64_t position) {
  if (view.layout != PKV_LAYOUT_PACKED) return nullptr;
  return view.k.data + view.blocks[position / view.block_size] * view.k.block_stride +
         static_cast<int64_t>(position % view.block_size / kernels::tile_tokens) *
             view.k.row_stride;
}

// Copies the tiles of all KV heads, which follow each other by these strides.
void copy_heads(const memory::Shape& shape, unsigned char* to, int64_t to_stride,
                const unsigned char* from, int64_t from_stride) {
  const auto bytes = static_cast<size_t>(head_bytes(shape));
  for (uint32_t head = 0; head < shape.kv_heads; head++, to += to_stride, from += from_stride)
    std::memcpy(to, from, bytes);
}

// Sets the padding at the end of each tile to 0. In a cache it is not initialised.
void clear_padding(const memory::Shape& shape, unsigned char* bytes) {
  const uint32_t key = kernels::tile_bytes(shape.dtype, shape.key_dim),
                 key_used = kernels::tile_tokens * kernels::row_bytes(shape.dtype, shape.key_dim);
  const uint32_t value =
      shape.latent() ? 0 : kernels::tile_bytes(shape.value_dtype, shape.value_dim);
  const uint32_t value_used =
      shape.latent()
          ? 0
          : kernels::tile_tokens * kernels::row_bytes(shape.value_dtype, shape.value_dim);
  if (key == key_used && value == value_used) return;
  for (uint32_t head = 0; head < shape.kv_heads; head++, bytes += key + value) {
    std::memset(bytes + key_used, 0, key - key_used);
    std::memset(bytes + key + value_used, 0, value - value_used);
  }
}

bool of_rows(pkv_dtype a, pkv_dtype b) {
  return kernels::dtype_of_rows(a) && kernels::dtype_of_rows(b);
}

// Converts K or V, as they are stored, by way of fp32, which represents every number of F16 and
// BF16.
void convert(const kernels::Table& kernels, const kernels::KvView& from, const kernels::KvView& to,
             uint64_t position, uint32_t tokens, kernels::Side which) {
  const bool keys = which == kernels::Side::k;
  const kernels::SideView& side = keys ? from.k : from.v;
  kernels::KvView stored = to;
  stored.k.rotation = stored.v.rotation = {};  // what is in the file is rotated already
  const int64_t row = int64_t{from.kv_heads} * side.dim;
  std::vector<float> rows(tokens * static_cast<size_t>(row));
  const kernels::RowsView view{reinterpret_cast<unsigned char*>(rows.data()), PKV_F32, row,
                               side.dim};
  kernels.load(
      {from, 0, tokens, keys ? view : kernels::RowsView{}, keys ? kernels::RowsView{} : view});
  kernels.store({stored, position, tokens, keys ? view : kernels::RowsView{},
                 keys ? kernels::RowsView{} : view});
}

}  // namespace

uint64_t saved_tile_tokens(const memory::Shape& shape, uint64_t block_size) {
  return shape.has_states() || shape.opaque() ? block_size : kernels::tile_tokens;
}
uint32_t saved_tile_layers(const memory::Shape& shape) { return shape.opaque() ? 1 : shape.layers; }
uint64_t saved_layer_bytes(const memory::Shape& shape) {
  if (shape.opaque())
    return checked_mul(ceil_div(shape.layer_bytes * shape.layers, memory::storage_alignment),
                       memory::storage_alignment, "bytes of a block");
  if (shape.has_states()) return memory::padded_state_bytes(shape);
  return checked_mul(head_bytes(shape), shape.kv_heads, "bytes of a tile");
}
uint64_t saved_tile_bytes(const memory::Shape& shape) {
  return checked_mul(saved_layer_bytes(shape), saved_tile_layers(shape),
                     "bytes of a tile of all layers");
}

kernels::KvView Run::view(uint32_t layer) const {
  kernels::KvView view = group->layout.view(group->slab->data(), layer);
  view.blocks = ids.data();
  return view;
}

unsigned char* Run::state(uint32_t layer, uint64_t position) const {
  return group->layout.state(group->slab->data(), ids[group->block_of(position)], layer);
}

bool convertible(const memory::Shape& from, const memory::Shape& to) {
  return (from.dtype == to.dtype || of_rows(from.dtype, to.dtype)) &&
         (from.value_dtype == to.value_dtype || of_rows(from.value_dtype, to.value_dtype));
}

void save_tile(const kernels::Table& kernels, const Run& run, uint32_t layer, uint64_t position,
               uint32_t tokens, unsigned char* to) {
  const memory::Shape& shape = run.group->shape;
  if (shape.has_states()) {
    std::memcpy(to, run.state(layer, position), shape.layer_bytes);
    std::memset(to + shape.layer_bytes, 0, saved_layer_bytes(shape) - shape.layer_bytes);
    return;
  }
  const kernels::KvView view = run.view(layer);
  const size_t bytes = static_cast<size_t>(saved_layer_bytes(shape));
  const unsigned char* const packed =
      tokens == kernels::tile_tokens ? packed_bytes(view, position) : nullptr;
  if (packed != nullptr) {
    copy_heads(shape, to, static_cast<int64_t>(head_bytes(shape)), packed, view.k.head_stride);
    clear_padding(shape, to);
    return;
  }
  std::memset(to, 0, bytes);
  kernels.transfer({view, position, file_view(shape, to), 0, tokens});
}

void load_tile(const kernels::Table& kernels, const Run& run, uint32_t layer, uint64_t position,
               uint32_t tokens, const memory::Shape& saved, const unsigned char* from) {
  const memory::Shape& shape = run.group->shape;
  if (shape.has_states()) {
    std::memcpy(run.state(layer, position), from, shape.layer_bytes);
    return;
  }
  const kernels::KvView view = run.view(layer);
  const bool same_k = saved.dtype == shape.dtype,
             same_v = shape.latent() || saved.value_dtype == shape.value_dtype;
  unsigned char* const packed = same_k && same_v ? packed_bytes(view, position) : nullptr;
  if (packed != nullptr) {
    copy_heads(shape, packed, view.k.head_stride, from, static_cast<int64_t>(head_bytes(shape)));
    return;
  }
  const kernels::KvView file = file_view(saved, const_cast<unsigned char*>(from));  // only read
  kernels::TransferTask task{file, 0, view, position, tokens};
  if (!same_k) task.from.k.data = nullptr;
  if (!same_v) task.from.v.data = nullptr;
  kernels.transfer(task);
  if (!same_k) convert(kernels, file, view, position, tokens, kernels::Side::k);
  if (!same_v) convert(kernels, file, view, position, tokens, kernels::Side::v);
}

}  // namespace pkv::file
