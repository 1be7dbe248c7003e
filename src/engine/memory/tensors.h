// Contiguous storage as textbooks have it: per layer one growing K tensor and one growing V tensor
// of a single sequence.
#pragma once

#include <memory_resource>
#include <vector>

#include "engine/memory/layout.h"

namespace pkv::memory {

class Tensors {
 public:
  Tensors(const Shape& shape, std::pmr::memory_resource& memory);
  ~Tensors();
  Tensors(Tensors&& other) noexcept;
  Tensors(const Tensors&) = delete;
  Tensors& operator=(const Tensors&) = delete;

  // Makes room for so many tokens, at least doubling; the content moves along. Throws bad_alloc,
  // state as before.
  void ensure(uint64_t tokens);
  // Copies the first `tokens` tokens of another one of the same shape; room for them is there.
  void copy_from(const Tensors& other, uint64_t tokens);
  void clear() noexcept;

  uint64_t bytes() const { return capacity_ * token_bytes() * layers_.size(); }
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

  const Shape shape_;
  std::pmr::memory_resource* const memory_;
  const uint64_t key_bytes_, value_bytes_;  // of one token in one layer
  uint64_t capacity_ = 0;                   // tokens
  std::pmr::vector<Layer> layers_;
};

}  // namespace pkv::memory
