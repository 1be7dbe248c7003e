#include "engine/memory/layout.h"

#include <cstring>

#include "base/checked.h"
#include "kernels/kernels.h"

namespace pkv {

Layout::Layout(pkv_layout kind, const Shape& shape, uint32_t block_size, uint64_t blocks)
    : kind_(kind), shape_(shape), block_size_(block_size), blocks_(blocks) {
  const unsigned element = dtype_bytes(shape.dtype);
  key_row_bytes_ = int64_t{shape.key_dim} * element;
  value_row_bytes_ = int64_t{shape.value_dim} * element;
  const uint64_t head_bytes = static_cast<uint64_t>(key_row_bytes_ + value_row_bytes_);
  token_bytes_ = checked_mul(checked_mul(head_bytes, shape.kv_heads, "bytes of a token"), shape.layers, "bytes of a token");
  block_bytes_ = checked_mul(token_bytes_, block_size, "bytes of a block");
  total_bytes_ = checked_mul(block_bytes_, blocks, "bytes of all blocks");
  if (total_bytes_ > INT64_MAX) fail(PKV_OVERFLOW, "bytes of all blocks: %llu exceed 2^63 - 1", (unsigned long long)total_bytes_);
}

KvView Layout::view(unsigned char* slab, uint32_t layer) const {
  const int64_t heads = shape_.kv_heads;
  KvView view{};
  view.block_size = block_size_;
  view.kv_heads = shape_.kv_heads;
  view.key_dim = shape_.key_dim;
  view.value_dim = shape_.value_dim;
  if (kind_ == PKV_LAYOUT_PACKED) {
    const int64_t layer_bytes = static_cast<int64_t>(block_bytes_ / shape_.layers);
    view.k = slab + layer * layer_bytes;
    view.v = view.k + tile_tokens * key_row_bytes_;
    view.k_head_stride = view.v_head_stride = tile_tokens * (key_row_bytes_ + value_row_bytes_);
    view.k_row_stride = view.v_row_stride = heads * view.k_head_stride;
    view.k_block_stride = view.v_block_stride = static_cast<int64_t>(block_bytes_);
  } else {
    const int64_t layer_bytes = static_cast<int64_t>(total_bytes_ / shape_.layers);
    view.k_head_stride = key_row_bytes_;
    view.v_head_stride = value_row_bytes_;
    view.k_row_stride = heads * key_row_bytes_;
    view.v_row_stride = heads * value_row_bytes_;
    view.k_block_stride = block_size_ * view.k_row_stride;
    view.v_block_stride = block_size_ * view.v_row_stride;
    view.k = slab + layer * layer_bytes;
    view.v = view.k + static_cast<int64_t>(blocks_) * view.k_block_stride;
  }
  return view;
}

void Layout::copy_block(unsigned char* slab, uint32_t to, uint32_t from) const {
  if (kind_ == PKV_LAYOUT_PACKED) {
    std::memcpy(slab + to * block_bytes_, slab + from * block_bytes_, block_bytes_);
    return;
  }
  for (uint32_t layer = 0; layer < shape_.layers; layer++) {
    const KvView at = view(slab, layer);
    std::memcpy(at.k + to * at.k_block_stride, at.k + from * at.k_block_stride, static_cast<size_t>(at.k_block_stride));
    std::memcpy(at.v + to * at.v_block_stride, at.v + from * at.v_block_stride, static_cast<size_t>(at.v_block_stride));
  }
}

KvView tensor_view(const Shape& shape, unsigned char* k, unsigned char* v) {
  const int64_t element = dtype_bytes(shape.dtype);
  KvView view{};
  view.k = k;
  view.v = v;
  view.k_head_stride = shape.key_dim * element;
  view.v_head_stride = shape.value_dim * element;
  view.k_row_stride = shape.kv_heads * view.k_head_stride;
  view.v_row_stride = shape.kv_heads * view.v_head_stride;
  view.kv_heads = shape.kv_heads;
  view.key_dim = shape.key_dim;
  view.value_dim = shape.value_dim;
  return view;
}

}  // namespace pkv
