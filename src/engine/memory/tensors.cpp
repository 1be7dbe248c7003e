// Allocates, grows, copies and frees the tensors of a contiguous sequence.
#include "engine/memory/tensors.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/checked.h"
#include "kernels/tile_layout.h"

namespace pkv::memory {

Tensors::Tensors(const Shape& shape, std::pmr::memory_resource& memory,
                 std::atomic<uint64_t>& total_bytes)
    : shape_(shape),
      memory_(&memory),
      total_bytes_(total_bytes),
      key_bytes_(uint64_t{shape.kv_heads} * kernels::row_bytes(shape.dtype, shape.key_dim)),
      value_bytes_(shape.latent ? 0
                                : uint64_t{shape.kv_heads} *
                                      kernels::row_bytes(shape.value_dtype, shape.value_dim)),
      layers_(shape.layers, &memory) {}

void Tensors::free(std::pmr::vector<Layer>& layers, uint64_t capacity) noexcept {
  for (Layer& layer : layers) {
    if (layer.k != nullptr) memory_->deallocate(layer.k, capacity * key_bytes_, storage_alignment);
    if (layer.v != nullptr)
      memory_->deallocate(layer.v, capacity * value_bytes_, storage_alignment);
    layer = {};
  }
}

void Tensors::clear() noexcept {
  free(layers_, capacity_);
  set_capacity(0);
}

void Tensors::set_capacity(uint64_t tokens) noexcept {
  total_bytes_.fetch_add((tokens - capacity_) * token_bytes() * layers_.size(),
                         std::memory_order_relaxed);
  capacity_ = tokens;
}

void Tensors::ensure(uint64_t tokens) {
  if (tokens <= capacity_) return;
  const uint64_t capacity = std::max(tokens, capacity_ * 2);
  checked_mul(capacity, token_bytes(), "bytes of a tensor");
  std::pmr::vector<Layer> grown(layers_.size(), memory_);
  try {
    for (Layer& layer : grown) {
      layer.k =
          static_cast<unsigned char*>(memory_->allocate(capacity * key_bytes_, storage_alignment));
      if (value_bytes_ > 0)
        layer.v = static_cast<unsigned char*>(
            memory_->allocate(capacity * value_bytes_, storage_alignment));
    }
  } catch (...) {
    free(grown, capacity);
    throw;
  }
  for (size_t i = 0; i < layers_.size() && capacity_ > 0; i++) {
    std::memcpy(grown[i].k, layers_[i].k, capacity_ * key_bytes_);
    if (value_bytes_ > 0) std::memcpy(grown[i].v, layers_[i].v, capacity_ * value_bytes_);
  }
  free(layers_, capacity_);
  layers_.swap(grown);
  set_capacity(capacity);
}

void Tensors::copy_from(const Tensors& other, uint64_t tokens) {
  for (size_t i = 0; i < layers_.size() && tokens > 0; i++) {
    std::memcpy(layers_[i].k, other.layers_[i].k, tokens * key_bytes_);
    if (value_bytes_ > 0) std::memcpy(layers_[i].v, other.layers_[i].v, tokens * value_bytes_);
  }
}

}  // namespace pkv::memory
