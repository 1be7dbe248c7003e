// Writes the state of a sequence as llama.cpp 0.5 and 0.6 do. It is written apart from the
// library's make_state().
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../recall/state.h"

namespace fake {

using Bytes = std::vector<std::byte>;

struct Cache {
  std::vector<uint32_t> key_bytes, value_rows;  // of each layer
  static constexpr uint32_t value_element = 2;
};

struct Model {
  pagedkv_llama::Form form;
  uint32_t streams = 1;
  bool transposed = false;
  std::vector<Cache> caches;
  std::vector<uint32_t> recurrent_bytes;  // of each tensor
};

struct Writer {
  Bytes bytes;
  std::vector<size_t> numbers;  // where the numbers are

  template <class Number>
  void number(Number n) {
    numbers.push_back(bytes.size());
    const auto* const first = reinterpret_cast<const std::byte*>(&n);
    bytes.insert(bytes.end(), first, first + sizeof n);
  }
  void byte(std::byte b) { bytes.push_back(b); }
};

// Calls out.byte(element(cache, tensor, row, position, byte)) for all bytes of tensors.
template <class Out, class Element>
void write_cells(Out& out, const Model& model, size_t c, uint32_t sequence,
                 const std::vector<uint32_t>& positions, const Element& element) {
  const Cache& cache = model.caches[c];
  for (const uint32_t position : positions)
    out.number(position), out.number(1u), out.number(sequence);
  const size_t layers = cache.key_bytes.size(), n = positions.size();
  out.number(uint32_t{model.transposed}), out.number(static_cast<uint32_t>(layers));
  if (model.form.rotations) out.number(64u), out.number(32u);
  for (size_t l = 0; l < layers; l++) {
    out.number(1), out.number(uint64_t{cache.key_bytes[l]});
    for (const uint32_t position : positions)
      for (uint32_t b = 0; b < cache.key_bytes[l]; b++) out.byte(element(c, l, 0u, position, b));
  }
  for (size_t l = 0; l < layers && model.form.values; l++) {
    const uint32_t rows = cache.value_rows[l], size = Cache::value_element;
    out.number(1);
    if (model.transposed)
      out.number(size), out.number(rows);
    else
      out.number(uint64_t{rows * size});
    // Not transposed, all rows of a cell follow each other.
    for (size_t i = 0; i < n * rows; i++) {
      const size_t cell = model.transposed ? i % n : i / rows;
      const size_t row = model.transposed ? i / n : i % rows;
      for (uint32_t b = 0; b < size; b++)
        out.byte(element(c, layers + l, static_cast<uint32_t>(row), positions[cell], b));
    }
  }
}

// The first position of the window of a sequence with n tokens.
inline uint32_t window_begin(const Model& model, uint32_t n) {
  const auto window = static_cast<uint32_t>(model.form.window);
  if (model.form.chunked) return (n - 1) / window * window;
  return n > window ? n - window : 0;
}

// The state of a sequence whose cells have these positions, in this order. The last one is `last`.
// Recurrent tensors are those of cache 2.
template <class Out, class Element>
void write_state(Out& out, const Model& model, uint32_t sequence,
                 const std::vector<uint32_t>& positions, uint32_t last, const Element& element) {
  out.number(uint32_t{0xaf143cd8}), out.number(sequence);
  for (size_t c = 0; c < model.caches.size(); c++) {
    std::vector<uint32_t> cells;
    for (const uint32_t position : positions)
      if (c == 0 || position >= window_begin(model, last + 1)) cells.push_back(position);
    out.number(model.streams);
    for (uint32_t stream = 0; stream < model.streams; stream++) {
      const bool own = stream == (model.streams == 1 ? 0 : sequence);
      out.number(own ? static_cast<uint32_t>(cells.size()) : 0u);
      if (own) write_cells(out, model, c, sequence, cells, element);
    }
  }
  if (!model.form.recurrent) return;
  out.number(1u), out.number(last), out.number(0u), out.number(0u), out.number(6u);
  for (size_t t = 0; t < model.recurrent_bytes.size(); t++) {
    out.number(0), out.number(uint64_t{model.recurrent_bytes[t]});
    for (uint32_t b = 0; b < model.recurrent_bytes[t]; b++)
      out.byte(element(size_t{2}, t, 0u, last, b));
  }
}

}  // namespace fake
