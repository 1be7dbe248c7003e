// Computes the sizes and strides of the layouts, checked against overflow.
#include "engine/memory/layout.h"

#include <cstring>
#include <initializer_list>

#include "base/checked.h"
#include "base/status.h"
#include "kernels/tile_layout.h"

namespace pkv::memory {

uint64_t padded_state_bytes(const Shape& shape) {
  return checked_mul(ceil_div(shape.layer_bytes, storage_alignment), storage_alignment,
                     "bytes of a state");
}

Layout::Layout(pkv_layout kind, const Shape& shape, uint32_t block_size, uint64_t blocks,
               uint64_t block_stride, bool by_heads)
    : kind_(kind), shape_(shape), block_size_(block_size), blocks_(blocks), by_heads_(by_heads) {
  if (shape.opaque()) {
    block_bytes_ = shape.layer_bytes * shape.layers;  // at most max_opaque_block_bytes
    if (!shape.has_states()) token_bytes_ = ceil_div(block_bytes_, block_size);
  } else if (shape.has_states()) {
    block_bytes_ = checked_mul(padded_state_bytes(shape), shape.layers, "bytes of all states");
  } else {
    const bool packed = kind == PKV_LAYOUT_PACKED;
    const auto bytes = packed ? kernels::tile_bytes : kernels::row_bytes;
    key_bytes_ = bytes(shape.dtype, shape.key_dim);
    value_bytes_ = shape.latent() ? 0 : bytes(shape.value_dtype, shape.value_dim);
    const uint64_t head_bytes =
        static_cast<uint64_t>(key_bytes_ + value_bytes_) / (packed ? kernels::tile_tokens : 1);
    token_bytes_ = checked_mul(checked_mul(head_bytes, shape.kv_heads, "bytes of a token"),
                               shape.layers, "bytes of a token");
    block_bytes_ = checked_mul(token_bytes_, block_size, "bytes of a block");
  }
  block_stride_ = block_stride != 0 ? block_stride : block_bytes_;
  total_bytes_ = checked_mul(block_stride_, blocks, "bytes of all blocks");
  if (total_bytes_ > INT64_MAX)
    fail(PKV_OVERFLOW, "bytes of all blocks: %llu exceed 2^63 - 1", llu(total_bytes_));
}

namespace {

// Returns a view with heads, dtypes, dims and rotations, but without addresses and strides.
kernels::KvView view_of(const Shape& shape) {
  kernels::KvView view{};
  view.kv_heads = shape.kv_heads;
  view.k.dtype = shape.dtype;
  view.k.dim = shape.key_dim;
  view.v.dtype = shape.value_dtype;
  view.v.dim = shape.value_dim;
  view.layout = PKV_LAYOUT_PLAIN;
  set_rotation(view, shape.rotations, shape.latent());
  return view;
}

}  // namespace

kernels::KvView Layout::view(unsigned char* slab, uint32_t layer) const {
  const int64_t heads = shape_.kv_heads;
  kernels::KvView view = view_of(shape_);
  view.layout = kind_;
  view.block_size = block_size_;
  if (kind_ == PKV_LAYOUT_PACKED) {
    const int64_t layer_bytes = static_cast<int64_t>(block_bytes_ / shape_.layers);
    view.k.data = slab + layer * layer_bytes;
    view.v.data = view.k.data + key_bytes_;
    const int64_t tile_bytes = key_bytes_ + value_bytes_,
                  tiles = by_heads_ ? block_size_ / kernels::tile_tokens : 1;
    view.k.head_stride = view.v.head_stride = tiles * tile_bytes;
    view.k.row_stride = view.v.row_stride = by_heads_ ? tile_bytes : heads * tile_bytes;
    view.k.block_stride = view.v.block_stride = static_cast<int64_t>(block_stride_);
  } else {
    const int64_t layer_bytes = static_cast<int64_t>(total_bytes_ / shape_.layers);
    view.k.head_stride = key_bytes_;
    view.v.head_stride = value_bytes_;
    view.k.row_stride = heads * key_bytes_;
    view.v.row_stride = heads * value_bytes_;
    view.k.block_stride = block_size_ * view.k.row_stride;
    view.v.block_stride = block_size_ * view.v.row_stride;
    view.k.data = slab + layer * layer_bytes;
    view.v.data = view.k.data + static_cast<int64_t>(blocks_) * view.k.block_stride;
  }
  if (shape_.latent()) view.v.data = nullptr;
  return view;
}

void Layout::copy_block(unsigned char* slab, uint32_t to, uint32_t from) const {
  if (kind_ == PKV_LAYOUT_PACKED) {
    std::memcpy(slab + to * block_stride_, slab + from * block_stride_, block_bytes_);
    return;
  }
  for (uint32_t layer = 0; layer < shape_.layers; layer++) {
    const kernels::KvView at = view(slab, layer);
    for (const kernels::SideView& side : {at.k, at.v})
      if (side.data != nullptr)
        std::memcpy(side.data + to * side.block_stride, side.data + from * side.block_stride,
                    static_cast<size_t>(side.block_stride));
  }
}

}  // namespace pkv::memory
