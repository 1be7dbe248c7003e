// The state of one sequence, as llama_state_seq_get_data_ext writes it.
//
//   magic, sequence
//   one attention cache, or two: that of all tokens, and that of the windows of the last tokens
//   recurrent states, if the model has them, alone or after the caches
//
// An attention cache:
//
//   the number of streams; for each stream:
//     the number of its cells; only one stream has any:
//       for each cell: position, 1, sequence
//       whether V is transposed, the number of layers, and since llama.cpp 0.6 how many dims of K
//       and of V are rotated together
//       for each layer: type and row size of K, then [cells][row size] bytes
//       for each layer, the same of V; if it is transposed, its type, the size of an element and
//       the number of rows, then [rows][cells][element size] bytes
//
// Recurrent states:
//
//   1, the position of the last token, 0, 0, the number of layers of the model
//   for each recurrent layer: type and row size of its first state, then the row
//   for each recurrent layer, the same of its second state
//
// All numbers have 32 bits, only row sizes have 64.
//
// The library keeps two kinds of blocks of it. A block of tokens has the tensors of the first cache
// in the same order, with block_size tokens in the order of their positions instead of all cells.
// An end has all else that a sequence has after a token: the tensors of the windows in the same
// way, with as many tokens as a window can have, and then the recurrent states.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
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

// What the states of all sequences of a context consist of.
struct Form {
  bool tokens = true;      // an attention cache of all tokens
  int32_t window = 0;      // another one of this many tokens; 0: none
  bool chunked = false;    // the window begins at a multiple of its size
  bool recurrent = false;  // recurrent states
  bool values = true;      // caches have V
  bool rotations = false;  // caches say how many dims are rotated together

  bool operator==(const Form&) const = default;
  // Whether a sequence has more than the cache of all tokens, so that it cannot be cut anywhere.
  bool has_ends() const { return window > 0 || recurrent; }
  // The first position that is in the window after n positions.
  int32_t window_begin(int32_t n) const;
};

// What the states of all sequences of a context have in common.
struct Shape {
  struct Cache {
    uint32_t streams, layers;
    bool transposed;
    std::array<uint32_t, 2> rotations;
    std::vector<Tensor> tensors;  // K of all layers, then V of all
    bool operator==(const Cache&) const = default;
    uint64_t token_bytes() const;
  };

  Form form;
  std::vector<Cache> caches;
  uint32_t recurrent_layers = 0;  // layers of the model, if some are recurrent
  std::vector<Tensor> recurrent;

  bool operator==(const Shape&) const = default;
  uint64_t token_bytes() const { return form.tokens ? caches.front().token_bytes() : 0; }
  uint64_t end_bytes() const;
};

// Bytes without initial values. The system is asked for large pages if there are many: most of the
// time that it takes to write to new memory is spent on pages.
class Buffer {
 public:
  explicit Buffer(size_t size);
  std::span<std::byte> bytes() const { return {bytes_.get(), size_}; }

 private:
  struct Delete {
    std::align_val_t alignment;
    void operator()(std::byte* bytes) const { ::operator delete(bytes, alignment); }
  };
  size_t size_;
  std::unique_ptr<std::byte, Delete> bytes_;
};

// A view of the bytes of a state.
class State {
 public:
  // Parses all but the elements of tensors. Throws Failure with MISMATCH unless the bytes are the
  // state of that sequence, with one cell for each position from `first` on.
  State(std::span<std::byte> bytes, int32_t sequence, const Form& form, int32_t first = 0);

  const Shape& shape() const { return shape_; }
  size_t tokens() const { return tokens_; }

  // Copies n tokens from the first-th on to the beginning of a block, or from there.
  void cut(size_t first, size_t n, size_t block_size, std::byte* block) const;
  void paste(size_t first, size_t n, size_t block_size, const std::byte* block) const;
  // Copies the end, or from there. What an end has room for, but the state does not have, is 0.
  void cut_end(std::byte* end) const;
  void paste_end(const std::byte* end) const;

  // The bytes of all tensors, for fingerprints.
  std::vector<std::span<const std::byte>> tensors() const;

 private:
  // The cells of a cache.
  struct Cells {
    const Shape::Cache* cache;
    std::vector<uint32_t> order;  // in the order of their positions
    std::vector<size_t> offsets;  // where the elements of each tensor begin
  };
  class Reader;

  void read_cache(Reader& in, int32_t sequence, int32_t first, std::optional<int32_t> end);
  void read_recurrent(Reader& in, int32_t first);
  template <class Copy>
  void for_each_run(const Cells& cells, size_t first, size_t n, size_t block_size, Copy copy) const;
  template <class Copy>
  void for_each_part_of_end(Copy copy) const;

  std::span<std::byte> bytes_;
  Shape shape_;
  size_t tokens_ = 0;
  std::vector<Cells> caches_;
  std::vector<size_t> recurrent_;  // where the elements of each tensor begin
};

// Returns the form of a state: the given one, or that with chunks or without windows, without V,
// and with rotations. Throws Failure with MISMATCH if it has none of these.
Form recognise(std::span<std::byte> bytes, int32_t sequence, Form form, int32_t first);

// Returns a state of n tokens, 1 or more, from position `first` on, whose tensors have no values
// yet.
Buffer make_state(const Shape& shape, int32_t sequence, uint32_t n, uint32_t first = 0);
// Returns its size.
size_t size_of_state(const Shape& shape, uint32_t n);

}  // namespace pagedkv_llama
