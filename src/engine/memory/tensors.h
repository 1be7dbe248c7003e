// Contiguous storage, as textbooks describe a KV cache: a sequence has, for each layer, one K
// tensor and one V tensor that grow with it.
#pragma once

#include <atomic>
#include <memory_resource>
#include <vector>

#include "engine/memory/layout.h"

namespace pkv::memory {

class Tensors {
 public:
  // total_bytes: counts the bytes of the tensors of all sequences.
  Tensors(const Shape& shape, std::pmr::memory_resource& memory,
          std::atomic<uint64_t>& total_bytes);
  ~Tensors() { clear(); }
  Tensors(const Tensors&) = delete;
  Tensors& operator=(const Tensors&) = delete;

  // Makes room for the given number of tokens. If the tensors must grow, they at least double, and
  // their content is copied. Throws OVERFLOW or bad_alloc and then leaves everything as it was.
  void ensure(uint64_t tokens);
  // Copies the first tokens of another object of the same shape. Both must have room for them.
  void copy_from(const Tensors& other, uint64_t tokens);
  // Frees the tensors.
  void clear() noexcept;

  kernels::KvView view(uint32_t layer) const {
    return tensor_view(shape_, layers_[layer].k, layers_[layer].v);
  }

 private:
  struct Layer {
    unsigned char* k = nullptr;
    unsigned char* v = nullptr;
  };
  uint64_t token_bytes() const { return key_bytes_ + value_bytes_; }  // of one layer
  void free(std::pmr::vector<Layer>& layers, uint64_t capacity) noexcept;
  void set_capacity(uint64_t tokens) noexcept;

  const Shape shape_;
  std::pmr::memory_resource* const memory_;
  std::atomic<uint64_t>& total_bytes_;
  const uint64_t key_bytes_, value_bytes_;  // of one token in one layer
  uint64_t capacity_ = 0;                   // in tokens
  std::pmr::vector<Layer> layers_;
};

}  // namespace pkv::memory
