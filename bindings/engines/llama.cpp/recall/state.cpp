#include "state.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "failure.h"

namespace pagedkv_llama {

namespace {

constexpr uint32_t magic = 0xaf143cd8;
constexpr size_t cell_bytes = 12;  // position, number of sequences, sequence

unsigned long long llu(uint64_t n) { return n; }

// Smaller ones get memory that the process has already.
constexpr size_t large_buffer = size_t{24} << 20, large_page = size_t{2} << 20;

std::align_val_t alignment_of(size_t size) {
  return std::align_val_t{size < large_buffer ? alignof(std::max_align_t) : large_page};
}

}  // namespace

Buffer::Buffer(size_t size)
    : size_(size),
      bytes_(static_cast<std::byte*>(::operator new(size, alignment_of(size))),
             Delete{alignment_of(size)}) {
#ifdef MADV_HUGEPAGE
  if (size >= large_buffer) madvise(bytes_.get(), size, MADV_HUGEPAGE);
#endif
}

class State::Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

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
           left(), at_, llu(size));
    at_ += size;
    return at_ - size;
  }

  // Returns cell[i] of position first + i.
  std::vector<uint32_t> read_cells(uint32_t cells, int32_t sequence, int32_t first) {
    if (cells > left() / cell_bytes)
      fail(PKV_MISMATCH, "the state is cut short: it has %u cells, but only %zu bytes", cells,
           left());
    std::vector<uint32_t> order(cells, cells);
    for (uint32_t cell = 0; cell < cells; cell++) {
      const auto position = read<int32_t>();
      const auto sequences = read<uint32_t>();
      const auto owner = read<int32_t>();
      if (sequences != 1 || owner != sequence)
        fail(PKV_MISMATCH,
             "cell %u of the state is of %u sequences, first %d: one of sequence %d was expected",
             cell, sequences, owner, sequence);
      const int64_t i = int64_t{position} - first;
      if (i < 0 || i >= cells || order[static_cast<size_t>(i)] != cells)
        fail(PKV_MISMATCH,
             "cell %u has position %d: %u cells must have positions from %d on, each one once",
             cell, position, cells, first);
      order[static_cast<size_t>(i)] = cell;
    }
    return order;
  }

  Tensor read_tensor(bool transposed) {
    Tensor tensor{.type = read<int32_t>(), .rows = 1, .element_bytes = 0};
    if (transposed) {
      tensor.element_bytes = read<uint32_t>();
      tensor.rows = read<uint32_t>();
    } else {
      tensor.element_bytes = read<uint64_t>();
    }
    return tensor;
  }

  // Skips the elements of a tensor, and returns where they begin.
  size_t skip_elements(const Tensor& tensor, size_t cells) {
    const uint64_t most = left() / cells;
    if (tensor.rows == 0 || (tensor.element_bytes > 0 && tensor.rows > most / tensor.element_bytes))
      fail(PKV_MISMATCH,
           "%llu rows of %zu elements of %llu bytes are not in a state of %zu more bytes",
           llu(tensor.rows), cells, llu(tensor.element_bytes), left());
    return skip(tensor.rows * tensor.element_bytes * cells);
  }

 private:
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

int32_t Form::window_begin(int32_t n) const {
  return chunked ? (n - 1) / window * window : std::max(0, n - window);
}

uint64_t Shape::Cache::token_bytes() const {
  uint64_t sum = 0;
  for (const Tensor& tensor : tensors) sum += tensor.rows * tensor.element_bytes;
  return sum;
}

uint64_t Shape::end_bytes() const {
  uint64_t sum = 0;
  if (form.window > 0) sum += static_cast<uint64_t>(form.window) * caches.back().token_bytes();
  for (const Tensor& tensor : recurrent) sum += tensor.element_bytes;
  return sum;
}

State::State(std::span<std::byte> bytes, int32_t sequence, const Form& form, int32_t first)
    : bytes_(bytes) {
  shape_.form = form;
  shape_.caches.reserve(2);  // so that views of them stay valid
  Reader in(bytes);
  if (const auto word = in.read<uint32_t>(); word != magic)
    fail(PKV_MISMATCH, "the state begins with %08x, not with %08x: this llama.cpp is not known",
         word, magic);
  if (const auto of = in.read<int32_t>(); of != sequence)
    fail(PKV_MISMATCH, "the state is of sequence %d, not of %d", of, sequence);
  if (form.tokens) {
    read_cache(in, sequence, first, std::nullopt);
    tokens_ = caches_.front().order.size();
  }
  if (form.window > 0) {
    if (tokens_ > static_cast<size_t>(INT32_MAX - first))
      fail(PKV_MISMATCH, "the state has %zu tokens from position %d on", tokens_, first);
    const int32_t end = first + static_cast<int32_t>(tokens_);
    read_cache(in, sequence, std::max(first, form.window_begin(end)), end);
  }
  if (form.recurrent) read_recurrent(in, first);
  if (in.left() > 0)
    fail(PKV_MISMATCH, "%zu bytes follow the values: a kind of memory that is not known",
         in.left());
}

// Reads a cache with cells from position `first` on, and up to `end` if it is given.
void State::read_cache(Reader& in, int32_t sequence, int32_t first, std::optional<int32_t> end) {
  Shape::Cache& cache = shape_.caches.emplace_back();
  Cells& cells = caches_.emplace_back();
  cells.cache = &cache;
  cache.streams = in.read<uint32_t>();
  uint32_t stream = 0, count = 0;
  while (stream < cache.streams && count == 0) count = in.read<uint32_t>(), stream++;
  if (count == 0) fail(PKV_MISMATCH, "none of the %u streams has cells", cache.streams);
  if (end && int64_t{first} + count != *end)
    fail(PKV_MISMATCH, "the window has %u cells, not the %d from position %d on", count,
         *end - first, first);
  cells.order = in.read_cells(count, sequence, first);

  const auto transposed = in.read<uint32_t>();
  cache.layers = in.read<uint32_t>();
  if (cache.layers == 0) fail(PKV_MISMATCH, "a cache has no layers: have all layers windows?");
  if (transposed > 1)
    fail(PKV_MISMATCH, "a cache of %u layers, V transposed: %u, is not known", cache.layers,
         transposed);
  cache.transposed = transposed == 1;
  if (shape_.form.rotations) cache.rotations = {in.read<uint32_t>(), in.read<uint32_t>()};
  const auto read = [&](bool is_transposed) {
    cache.tensors.push_back(in.read_tensor(is_transposed));
    if (cache.tensors.back().element_bytes == 0)
      fail(PKV_MISMATCH, "tensor %zu of a cache has no bytes", cache.tensors.size() - 1);
    cells.offsets.push_back(in.skip_elements(cache.tensors.back(), count));
  };
  for (uint32_t layer = 0; layer < cache.layers; layer++) read(false);
  for (uint32_t layer = 0; layer < cache.layers && shape_.form.values; layer++)
    read(cache.transposed);
  for (; stream < cache.streams; stream++)
    if (in.read<uint32_t>() != 0) fail(PKV_MISMATCH, "more than one stream has cells");
}

void State::read_recurrent(Reader& in, int32_t first) {
  const auto states = in.read<uint32_t>();
  const int64_t last = in.read<int32_t>();
  const auto sequences = in.read<uint32_t>(), transposed = in.read<uint32_t>();
  shape_.recurrent_layers = in.read<uint32_t>();
  if (states != 1 || sequences != 0 || transposed != 0)
    fail(PKV_MISMATCH, "%u recurrent states of %u sequences, transposed: %u, are not known", states,
         sequences, transposed);
  if (!shape_.form.tokens) tokens_ = static_cast<size_t>(std::max<int64_t>(last - first + 1, 0));
  if (tokens_ == 0 || last != first + static_cast<int64_t>(tokens_) - 1)
    fail(PKV_MISMATCH, "the recurrent state is that of position %lld, but there are %zu tokens",
         static_cast<long long>(last), tokens_);
  while (in.left() > 0) {
    shape_.recurrent.push_back(in.read_tensor(false));
    recurrent_.push_back(in.skip_elements(shape_.recurrent.back(), 1));
  }
  if (shape_.recurrent.empty()) fail(PKV_MISMATCH, "no layer has a recurrent state");
}

// Calls copy(where it is in the state, where it is in a block, bytes) for each run of tokens that
// follow each other in both.
template <class Copy>
void State::for_each_run(const Cells& cells, size_t first, size_t n, size_t block_size,
                         Copy copy) const {
  struct Run {
    size_t token, cell, length;
  };
  std::vector<Run> runs;
  for (size_t i = 0; i < n; i++) {
    const size_t cell = cells.order[first + i];
    if (i > 0 && cell == runs.back().cell + runs.back().length)
      runs.back().length++;
    else
      runs.push_back({i, cell, 1});
  }
  size_t in_block = 0;
  for (size_t t = 0; t < cells.offsets.size(); t++) {
    const Tensor& tensor = cells.cache->tensors[t];
    const size_t bytes = tensor.element_bytes;
    for (size_t row = 0; row < tensor.rows; row++) {
      for (const Run& run : runs)
        copy(&bytes_[cells.offsets[t] + (row * cells.order.size() + run.cell) * bytes],
             in_block + run.token * bytes, run.length * bytes);
      in_block += block_size * bytes;
    }
  }
}

template <class Copy>
void State::for_each_part_of_end(Copy copy) const {
  size_t at = 0;
  if (const auto window = static_cast<size_t>(shape_.form.window); window > 0) {
    const Cells& cells = caches_.back();
    for_each_run(cells, 0, cells.order.size(), window, copy);
    at = window * cells.cache->token_bytes();
  }
  for (size_t t = 0; t < recurrent_.size(); t++) {
    const size_t bytes = shape_.recurrent[t].element_bytes;
    copy(&bytes_[recurrent_[t]], at, bytes);
    at += bytes;
  }
}

void State::cut(size_t first, size_t n, size_t block_size, std::byte* block) const {
  for_each_run(caches_.front(), first, n, block_size,
               [&](const std::byte* bytes, size_t at, size_t size) {
                 std::memcpy(block + at, bytes, size);
               });
}

void State::paste(size_t first, size_t n, size_t block_size, const std::byte* block) const {
  for_each_run(
      caches_.front(), first, n, block_size,
      [&](std::byte* bytes, size_t at, size_t size) { std::memcpy(bytes, block + at, size); });
}

void State::cut_end(std::byte* end) const {
  std::memset(end, 0, shape_.end_bytes());
  for_each_part_of_end(
      [&](const std::byte* bytes, size_t at, size_t size) { std::memcpy(end + at, bytes, size); });
}

void State::paste_end(const std::byte* end) const {
  for_each_part_of_end(
      [&](std::byte* bytes, size_t at, size_t size) { std::memcpy(bytes, end + at, size); });
}

std::vector<std::span<const std::byte>> State::tensors() const {
  std::vector<std::span<const std::byte>> all;
  for (const Cells& cells : caches_)
    for (size_t t = 0; t < cells.offsets.size(); t++) {
      const Tensor& tensor = cells.cache->tensors[t];
      all.push_back(bytes_.subspan(cells.offsets[t],
                                   tensor.rows * tensor.element_bytes * cells.order.size()));
    }
  for (size_t t = 0; t < recurrent_.size(); t++)
    all.push_back(bytes_.subspan(recurrent_[t], shape_.recurrent[t].element_bytes));
  return all;
}

Form recognise(std::span<std::byte> bytes, int32_t sequence, Form form, int32_t first) {
  std::optional<Failure> reason;
  const int32_t window = form.window;
  for (int way = 0; way < (window > 0 ? 12 : 4); way++) {
    form.rotations = (way & 1) != 0, form.values = (way & 2) == 0, form.chunked = way / 4 == 1;
    form.window = way < 8 ? window : 0;
    try {
      const State state(bytes, sequence, form, first);
      return form;
    } catch (Failure& failure) {
      if (!reason) reason = std::move(failure);
    }
  }
  throw std::move(*reason);
}

namespace {

// Puts the parts of a state one after the other. It only adds up their sizes at first.
class Writer {
 public:
  Writer(const Shape& shape, int32_t sequence, uint32_t first, uint32_t end)
      : shape_(shape), sequence_(sequence), first_(first), end_(end) {}

  size_t write(std::byte* to) {
    to_ = to, at_ = 0;
    put(magic), put(sequence_);
    for (size_t c = 0; c < shape_.caches.size(); c++) {
      const int32_t window = c == 0 ? 0 : shape_.form.window_begin(static_cast<int32_t>(end_));
      put_cache(shape_.caches[c], std::max(first_, static_cast<uint32_t>(window)));
    }
    if (shape_.form.recurrent) put_recurrent();
    return at_;
  }

 private:
  template <class Number>
  void put(Number number) {
    if (to_ != nullptr) std::memcpy(to_ + at_, &number, sizeof number);
    at_ += sizeof number;
  }

  void put_cache(const Shape::Cache& cache, uint32_t first) {
    put(cache.streams);
    // llama.cpp gives each sequence the stream of its number, unless all share one.
    const uint32_t own = cache.streams == 1 ? 0 : static_cast<uint32_t>(sequence_);
    for (uint32_t stream = 0; stream < cache.streams; stream++)
      if (stream == own)
        put_cells(cache, first);
      else
        put(uint32_t{0});
  }

  void put_cells(const Shape::Cache& cache, uint32_t first) {
    put(end_ - first);
    for (uint32_t i = first; i < end_; i++) put(i), put(uint32_t{1}), put(sequence_);
    put(uint32_t{cache.transposed}), put(cache.layers);
    if (shape_.form.rotations) put(cache.rotations[0]), put(cache.rotations[1]);
    for (size_t t = 0; t < cache.tensors.size(); t++) {
      const Tensor& tensor = cache.tensors[t];
      put(tensor.type);
      if (t >= cache.layers && cache.transposed)
        put(static_cast<uint32_t>(tensor.element_bytes)), put(static_cast<uint32_t>(tensor.rows));
      else
        put(tensor.element_bytes);
      at_ += tensor.rows * tensor.element_bytes * (end_ - first);
    }
  }

  void put_recurrent() {
    put(uint32_t{1}), put(end_ - 1), put(uint32_t{0}), put(uint32_t{0});
    put(shape_.recurrent_layers);
    for (const Tensor& tensor : shape_.recurrent) {
      put(tensor.type), put(tensor.element_bytes);
      at_ += tensor.element_bytes;
    }
  }

  const Shape& shape_;
  const int32_t sequence_;
  const uint32_t first_, end_;
  std::byte* to_ = nullptr;
  size_t at_ = 0;
};

}  // namespace

Buffer make_state(const Shape& shape, int32_t sequence, uint32_t n, uint32_t first) {
  Writer writer(shape, sequence, first, first + n);
  Buffer state(writer.write(nullptr));
  writer.write(state.bytes().data());
  return state;
}

size_t size_of_state(const Shape& shape, uint32_t n) {
  return Writer(shape, 0, 0, n).write(nullptr);
}

}  // namespace pagedkv_llama
