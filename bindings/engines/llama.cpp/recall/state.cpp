#include "state.h"

#include <algorithm>
#include <cstring>

#include "failure.h"

namespace pagedkv_llama {

namespace {

constexpr uint32_t magic = 0xaf143cd8;
constexpr size_t cell_bytes = 12;  // position, number of sequences, sequence

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t at() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }

  template <class Number>
  Number read() {
    const size_t from = skip(sizeof(Number));
    Number n;
    std::memcpy(&n, &bytes_[from], sizeof n);
    return n;
  }

  // Skips some bytes, and returns where they begin.
  size_t skip(uint64_t size) {
    if (size > left())
      fail(PKV_MISMATCH, "the state is cut short: %zu bytes are left at %zu, %llu are needed",
           left(), at_, static_cast<unsigned long long>(size));
    at_ += size;
    return at_ - size;
  }

 private:
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

// Returns cell[i] of position first + i.
std::vector<uint32_t> read_cells(Reader& in, uint32_t cells, int32_t sequence, int32_t first) {
  if (cells > in.left() / cell_bytes)
    fail(PKV_MISMATCH, "the state is cut short: it has %u cells, but only %zu bytes", cells,
         in.left());
  std::vector<uint32_t> order(cells, cells);
  for (uint32_t cell = 0; cell < cells; cell++) {
    const auto position = in.read<int32_t>();
    const auto sequences = in.read<uint32_t>();
    const auto owner = in.read<int32_t>();
    if (sequences != 1 || owner != sequence)
      fail(PKV_MISMATCH,
           "cell %u of the state is of %u sequences, first %d: one of sequence %d was expected",
           cell, sequences, owner, sequence);
    const int64_t i = int64_t{position} - first;
    if (i < 0 || i >= cells || order[static_cast<size_t>(i)] != cells)
      fail(PKV_MISMATCH,
           "cell %u has position %d: %u cells must have positions from %d on, each one once", cell,
           position, cells, first);
    order[static_cast<size_t>(i)] = cell;
  }
  return order;
}

Tensor read_tensor(Reader& in, bool transposed) {
  Tensor tensor{.type = in.read<int32_t>(), .rows = 1, .element_bytes = 0};
  if (transposed) {
    tensor.element_bytes = in.read<uint32_t>();
    tensor.rows = in.read<uint32_t>();
  } else {
    tensor.element_bytes = in.read<uint64_t>();
  }
  return tensor;
}

// Skips the elements of a tensor, and returns where they begin.
size_t skip_elements(Reader& in, const Tensor& tensor, uint32_t cells) {
  const uint64_t most = in.left() / cells;
  if (tensor.rows == 0 || tensor.element_bytes == 0 || tensor.rows > most ||
      tensor.element_bytes > most / tensor.rows)
    fail(PKV_MISMATCH,
         "%llu rows of %u elements of %llu bytes are not in a state of %zu more bytes",
         static_cast<unsigned long long>(tensor.rows), cells,
         static_cast<unsigned long long>(tensor.element_bytes), in.left());
  return in.skip(tensor.rows * tensor.element_bytes * cells);
}

}  // namespace

uint64_t Shape::token_bytes() const {
  uint64_t sum = 0;
  for (const Tensor& tensor : tensors) sum += tensor.rows * tensor.element_bytes;
  return sum;
}

State::State(std::span<std::byte> bytes, int32_t sequence, int32_t first) : bytes_(bytes) {
  Reader in(bytes);
  if (const auto word = in.read<uint32_t>(); word != magic)
    fail(PKV_MISMATCH, "the state begins with %08x, not with %08x: this llama.cpp is not known",
         word, magic);
  if (const auto of = in.read<int32_t>(); of != sequence)
    fail(PKV_MISMATCH, "the state is of sequence %d, not of %d", of, sequence);

  shape_.streams = in.read<uint32_t>();
  uint32_t stream = 0, cells = 0;
  while (stream < shape_.streams && cells == 0) cells = in.read<uint32_t>(), stream++;
  if (cells == 0) fail(PKV_MISMATCH, "none of the %u streams has cells", shape_.streams);
  order_ = read_cells(in, cells, sequence, first);

  const auto transposed = in.read<uint32_t>();
  shape_.layers = in.read<uint32_t>();
  if (transposed > 1 || shape_.layers == 0)
    fail(PKV_MISMATCH, "a state of %u layers, V transposed: %u, is not known", shape_.layers,
         transposed);
  shape_.transposed = transposed == 1;
  const auto read = [&](bool is_transposed) {
    shape_.tensors.push_back(read_tensor(in, is_transposed));
    offsets_.push_back(skip_elements(in, shape_.tensors.back(), cells));
  };
  for (uint32_t layer = 0; layer < shape_.layers; layer++) read(false);
  const uint64_t other_streams = uint64_t{4} * (shape_.streams - stream);
  if (in.left() > other_streams)
    for (uint32_t layer = 0; layer < shape_.layers; layer++) read(shape_.transposed);

  if (in.left() != other_streams)
    fail(PKV_MISMATCH, "%zu bytes follow the values, not %llu: more than one attention cache?",
         in.left(), static_cast<unsigned long long>(other_streams));
  while (in.left() > 0)
    if (in.read<uint32_t>() != 0) fail(PKV_MISMATCH, "more than one stream has cells");
}

template <class Copy>
void State::for_each_run(size_t first, size_t n, size_t block_size, Copy copy) const {
  struct Run {
    size_t token, cell, length;
  };
  std::vector<Run> runs;
  for (size_t i = 0; i < n; i++) {
    const size_t cell = order_[first + i];
    if (i > 0 && cell == runs.back().cell + runs.back().length)
      runs.back().length++;
    else
      runs.push_back({i, cell, 1});
  }
  size_t in_block = 0;
  for (size_t t = 0; t < offsets_.size(); t++) {
    const size_t bytes = shape_.tensors[t].element_bytes;
    for (size_t row = 0; row < shape_.tensors[t].rows; row++) {
      for (const Run& run : runs)
        copy(&bytes_[offsets_[t] + (row * cells() + run.cell) * bytes],
             in_block + run.token * bytes, run.length * bytes);
      in_block += block_size * bytes;
    }
  }
}

void State::cut(size_t first, size_t n, size_t block_size, std::byte* block) const {
  for_each_run(first, n, block_size, [&](const std::byte* bytes, size_t at, size_t size) {
    std::memcpy(block + at, bytes, size);
  });
}

void State::paste(size_t first, size_t n, size_t block_size, const std::byte* block) const {
  for_each_run(first, n, block_size, [&](std::byte* bytes, size_t at, size_t size) {
    std::memcpy(bytes, block + at, size);
  });
}

std::vector<std::span<const std::byte>> State::tensors() const {
  std::vector<std::span<const std::byte>> all;
  for (size_t t = 0; t < offsets_.size(); t++) {
    const Tensor& tensor = shape_.tensors[t];
    all.push_back(bytes_.subspan(offsets_[t], tensor.rows * tensor.element_bytes * cells()));
  }
  return all;
}

Buffer make_state(const Shape& shape, int32_t sequence, uint32_t n) {
  // Adds up the size first, then writes.
  std::byte* to = nullptr;
  size_t size = 0;
  const auto put = [&](auto number) {
    if (to != nullptr) std::memcpy(to + size, &number, sizeof number);
    size += sizeof number;
  };
  const auto write = [&] {
    size = 0;
    put(magic), put(sequence), put(shape.streams);
    // llama.cpp gives each sequence the stream of its number, unless all share one.
    const uint32_t own = shape.streams == 1 ? 0 : static_cast<uint32_t>(sequence);
    for (uint32_t stream = 0; stream < shape.streams; stream++) {
      put(stream == own ? n : uint32_t{0});
      if (stream != own) continue;
      for (uint32_t i = 0; i < n; i++) put(i), put(uint32_t{1}), put(sequence);
      put(uint32_t{shape.transposed}), put(shape.layers);
      for (size_t t = 0; t < shape.tensors.size(); t++) {
        const Tensor& tensor = shape.tensors[t];
        put(tensor.type);
        if (t >= shape.layers && shape.transposed)
          put(static_cast<uint32_t>(tensor.element_bytes)), put(static_cast<uint32_t>(tensor.rows));
        else
          put(tensor.element_bytes);
        size += tensor.rows * tensor.element_bytes * n;
      }
    }
  };
  write();
  Buffer state(size);
  to = state.bytes().data();
  write();
  return state;
}

}  // namespace pagedkv_llama
