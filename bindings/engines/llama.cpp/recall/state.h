// The state of one sequence, as llama_state_seq_get_data_ext writes it for a plain attention cache.
//
//   magic, sequence, the number of streams; for each stream:
//     the number of its cells; only one stream has any:
//       for each cell: position, 1, sequence
//       whether V is transposed, the number of layers
//       for each layer: type and row size of K, then [cells][row size] bytes
//       for each layer, the same of V; if it is transposed, its type, the size of an element and
//       the number of rows, then [rows][cells][element size] bytes
//
// All numbers have 32 bits, only row sizes have 64. A block has the same tensors in the same order,
// with block_size tokens in the order of their positions instead of all cells.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace pagedkv_llama {

// K or V of one layer: [rows][cells] elements. What is not transposed is one row, whose elements
// are all that a cell has.
struct Tensor {
  int32_t type;
  uint64_t rows, element_bytes;
  bool operator==(const Tensor&) const = default;
};

// What the states of all sequences of a context have in common.
struct Shape {
  uint32_t streams, layers;
  bool transposed;
  std::vector<Tensor> tensors;  // K of all layers, then V of all or of none

  bool operator==(const Shape&) const = default;
  uint64_t token_bytes() const;
};

// Bytes without initial values.
class Buffer {
 public:
  explicit Buffer(size_t size)
      : bytes_(std::make_unique_for_overwrite<std::byte[]>(size)), size_(size) {}
  std::span<std::byte> bytes() const { return {bytes_.get(), size_}; }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  size_t size_;
};

// A view of the bytes of a state.
class State {
 public:
  // Parses all but the elements of tensors. Throws Failure with MISMATCH unless the bytes are the
  // state of that sequence, with one cell for each position from `first` on.
  State(std::span<std::byte> bytes, int32_t sequence, int32_t first = 0);

  const Shape& shape() const { return shape_; }
  size_t cells() const { return order_.size(); }

  // Copies n tokens from the first-th on to the beginning of a block, or from there.
  void cut(size_t first, size_t n, size_t block_size, std::byte* block) const;
  void paste(size_t first, size_t n, size_t block_size, const std::byte* block) const;

  // The bytes of all tensors, for fingerprints.
  std::vector<std::span<const std::byte>> tensors() const;

 private:
  template <class Copy>
  void for_each_run(size_t first, size_t n, size_t block_size, Copy copy) const;

  std::span<std::byte> bytes_;
  Shape shape_;
  std::vector<uint32_t> order_;  // the cells in the order of their positions
  std::vector<size_t> offsets_;  // where the elements of each tensor begin
};

// Returns a state of n tokens, 1 or more, whose tensors have no values yet.
Buffer make_state(const Shape& shape, int32_t sequence, uint32_t n);

}  // namespace pagedkv_llama
