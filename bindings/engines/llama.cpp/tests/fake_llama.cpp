#include "fake_llama.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "../../../../tests/support/memory.h"

namespace fake {

namespace {

constexpr int32_t words = 1000;

uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}

uint64_t hash_of(uint64_t before, int32_t position, int32_t token) {
  return mix(before * 31 + static_cast<uint64_t>(position) * 1000003 +
             static_cast<uint64_t>(token) + 1);
}

// The bytes of a cell: its hash, and what is drawn from it.
void draw(uint64_t hash, std::byte* to, size_t size) {
  std::memcpy(to, &hash, sizeof hash);
  for (size_t at = sizeof hash; at < size; at += sizeof hash) {
    hash = mix(hash + 0x9E3779B97F4A7C15);
    std::memcpy(to + at, &hash, std::min(sizeof hash, size - at));
  }
}

uint64_t hash_in(const std::byte* from) {
  uint64_t hash;
  std::memcpy(&hash, from, sizeof hash);
  return hash;
}

int32_t token_of(uint64_t hash) { return static_cast<int32_t>(mix(hash) % words); }

[[noreturn]] void stop(const char* what) {
  std::printf("the fake llama.cpp was called wrongly: %s\n", what);
  std::abort();
}

// Compares the numbers of a state, and puts its bytes where they belong.
struct Reader {
  std::span<const std::byte> bytes;
  size_t at = 0;
  bool good = true;

  template <class Number>
  void number(Number expected) {
    Number n{};
    if (at + sizeof n <= bytes.size()) std::memcpy(&n, &bytes[at], sizeof n);
    good = good && at + sizeof n <= bytes.size() && n == expected;
    at += sizeof n;
  }
  void byte(std::byte& to) {
    good = good && at < bytes.size();
    if (good) to = bytes[at];
    at++;
  }
};

struct Counter {
  size_t size = 0;
  template <class Number>
  void number(Number n) {
    size += sizeof n;
  }
  void byte(std::byte) { size++; }
};

// While it lives, this thread's allocations are not refused.
class Unrefused {
 public:
  Unrefused() { memory::countdown = 0; }
  Unrefused(const Unrefused&) = delete;
  Unrefused& operator=(const Unrefused&) = delete;
  ~Unrefused() { memory::countdown = before_; }

 private:
  const uint64_t before_ = memory::countdown;
  const memory::Exempt exempt_;
};

}  // namespace

const std::vector<std::string> kinds = {"tokens", "streams", "windows",
                                        "chunks", "hybrid",  "recurrent"};

Model model_of(const std::string& kind, uint32_t scale) {
  Model model;
  model.form.tokens = kind != "recurrent";
  if (kind == "streams") model.streams = 4;
  model.form.window = kind == "windows" || kind == "chunks" ? 24 : 0;
  model.form.chunked = kind == "chunks";
  model.form.recurrent = kind == "hybrid" || kind == "recurrent";
  model.form.rotations = kind == "windows";
  model.transposed = kind == "windows" || kind == "hybrid";
  if (model.form.tokens) model.caches.push_back({{16 * scale, 8 * scale}, {4 * scale, 2}});
  if (model.form.window > 0) model.caches.push_back({{8 * scale}, {4}});
  if (model.form.recurrent) model.recurrent_bytes = {24 * scale, 0, 16};
  return model;
}

int32_t next_of(std::span<const int32_t> tokens) {
  uint64_t hash = 0;
  for (size_t i = 0; i < tokens.size(); i++)
    hash = hash_of(hash, static_cast<int32_t>(i), tokens[i]);
  return token_of(hash);
}

Context::Context(const Model& model, uint32_t sequences, uint32_t tokens)
    : model_(model), capacity_(tokens), sequences_(sequences) {
  for (size_t c = 0; c < model.caches.size(); c++) {
    for (const uint32_t bytes : model.caches[c].key_bytes)
      offsets_[c].push_back(cell_bytes_), cell_bytes_ += bytes;
    for (const uint32_t rows : model.caches[c].value_rows)
      offsets_[c].push_back(cell_bytes_), cell_bytes_ += size_t{rows} * Cache::value_element;
  }
  for (const uint32_t bytes : model.recurrent_bytes)
    offsets_[2].push_back(recurrent_bytes_), recurrent_bytes_ += bytes;
  for (Sequence& sequence : sequences_) {
    sequence.cells.resize(tokens * cell_bytes_);
    sequence.recurrent.resize(recurrent_bytes_);
  }
}

uint64_t Context::last_hash(const Sequence& of) const {
  if (of.length == 0) return 0;
  const uint64_t recurrent = model_.form.recurrent ? hash_in(of.recurrent.data()) : 0;
  if (!model_.form.tokens) return recurrent;
  const auto last = static_cast<size_t>(of.length - 1);
  const uint64_t hash = hash_in(&of.cells[last * cell_bytes_]);
  // A sequence whose parts are of different texts, or whose window lacks what the next token sees.
  const bool whole = (!model_.form.recurrent || recurrent == hash) &&
                     (model_.form.window == 0 ||
                      of.window_from <= static_cast<int32_t>(window_begin(
                                            model_, static_cast<uint32_t>(of.first + of.length))));
  return whole ? hash : mix(hash ^ recurrent);
}

void Context::fill(Sequence& to, int32_t i, uint64_t hash) {
  draw(hash, &to.cells[static_cast<size_t>(i) * cell_bytes_], cell_bytes_);
}

bool Context::append(Sequence& to, int32_t position, int32_t token) {
  if (to.length == static_cast<int32_t>(capacity_)) return false;
  if (to.length == 0) to.first = to.window_from = position;
  if (position != to.first + to.length) stop("a position does not follow the last one");
  const uint64_t hash = hash_of(last_hash(to), position, token);
  if (model_.form.tokens) fill(to, to.length, hash);
  if (model_.form.recurrent) draw(hash, to.recurrent.data(), recurrent_bytes_);
  to.length++;
  return true;
}

void Context::decode(int32_t sequence, std::span<const int32_t> tokens) {
  for (const int32_t token : tokens)
    if (!append(of(sequence), of(sequence).length, token)) stop("a sequence is too long");
}

int32_t Context::next(int32_t sequence) const { return token_of(last_hash(of(sequence))); }

bool Context::has(int32_t sequence, std::span<const int32_t> tokens) const {
  const Sequence& self = of(sequence);
  if (tokens.empty()) return self.length == 0;
  if (self.length != static_cast<int32_t>(tokens.size()) || self.first != 0) return false;
  const uint32_t begin =
      model_.form.window > 0 ? window_begin(model_, static_cast<uint32_t>(tokens.size())) : 0;
  if (model_.form.window > 0 && self.window_from > static_cast<int32_t>(begin)) return false;
  const size_t whole = cell_bytes_, outside = model_.form.window > 0 ? offsets_[1][0] : whole;
  std::byte cell[1024], recurrent[1024];
  uint64_t hash = 0;
  for (size_t i = 0; i < tokens.size(); i++) {
    hash = hash_of(hash, static_cast<int32_t>(i), tokens[i]);
    draw(hash, cell, whole);
    if (model_.form.tokens &&
        std::memcmp(cell, &self.cells[i * whole], i < begin ? outside : whole) != 0)
      return false;
  }
  draw(hash, recurrent, recurrent_bytes_);
  return recurrent_bytes_ == 0 ||
         std::memcmp(recurrent, self.recurrent.data(), recurrent_bytes_) == 0;
}

Bytes Context::all_of(int32_t sequence) const {
  const Sequence& self = of(sequence);
  const auto n = static_cast<size_t>(self.length);
  Bytes all(self.cells.begin(), self.cells.begin() + static_cast<ptrdiff_t>(n * cell_bytes_));
  if (n == 0) return all;
  all.insert(all.end(), self.recurrent.begin(), self.recurrent.end());
  all.push_back(static_cast<std::byte>(self.first));
  return all;
}

// Cells of positions [first, end) are also those of a sequence that is empty, or ends before them.
void Context::copy(int32_t from, int32_t to, int32_t first, int32_t end) {
  if (model_.streams > 1 || model_.caches.size() != 1 || model_.form.recurrent || from == to)
    stop("parts of a sequence are copied, but sequences have streams or ends");
  const Sequence& source = of(from);
  Sequence& target = of(to);
  first = std::max(first, source.first), end = std::min(end, source.first + source.length);
  if (first >= end) return;
  if (target.length == 0) target.first = first;
  if (first != target.first + target.length) stop("a copy does not follow the last position");
  const auto cell = [&](int32_t i) { return static_cast<ptrdiff_t>(i) * ptrdiff_t(cell_bytes_); };
  std::copy(source.cells.begin() + cell(first - source.first),
            source.cells.begin() + cell(end - source.first),
            target.cells.begin() + cell(target.length));
  target.length += end - first;
}

bool Context::fails() {
  if (calls_until_fault_ == 0 || --calls_until_fault_ > 0) return false;
  return struck = true;
}

// A batch that fails may have been computed in part.
int32_t Context::decode(const Batch& batch) {
  const bool fault = fails();
  const int32_t n = fault ? way_ % 2 * batch.n / 2 : batch.n;
  for (int32_t i = 0; i < n; i++) {
    if (batch.sequences[i] != 1 || batch.token[i] < 0 || batch.token[i] >= words)
      stop("a batch has a token of no sequence, or not of the vocabulary");
    if (!append(of(batch.sequence[i][0]), batch.position[i], batch.token[i])) return 1;
  }
  return fault ? -3 : 0;
}

int32_t Context::first_position(int32_t sequence) const {
  const Sequence& self = of(sequence);
  if (self.length == 0) return -1;
  if (model_.form.recurrent) return self.first + self.length - 1;
  return model_.form.window > 0 ? self.window_from : self.first;
}

int32_t Context::last_position(int32_t sequence) const {
  const Sequence& self = of(sequence);
  return self.length == 0 ? -1 : self.first + self.length - 1;
}

// As in a ring, cells of every other sequence begin in the middle.
std::vector<uint32_t> Context::positions_of(int32_t sequence) const {
  const Sequence& self = of(sequence);
  std::vector<uint32_t> positions(static_cast<size_t>(self.length));
  std::iota(positions.begin(), positions.end(), static_cast<uint32_t>(self.first));
  if (sequence % 2 == 1)
    std::rotate(positions.begin(), positions.begin() + self.length / 3, positions.end());
  return positions;
}

std::byte& Context::at(Sequence& of, size_t cache, size_t tensor, size_t row, size_t position,
                       size_t byte) const {
  if (cache == 2) return of.recurrent[offsets_[2][tensor] + byte];
  const size_t cell = position - static_cast<size_t>(of.first);
  return of.cells[cell * cell_bytes_ + offsets_[cache][tensor] + row * Cache::value_element + byte];
}

size_t Context::state_size(int32_t sequence) const {
  Counter counter;
  const std::vector<uint32_t> positions = positions_of(sequence);
  write_state(counter, model_, static_cast<uint32_t>(sequence), positions,
              static_cast<uint32_t>(last_position(sequence)),
              [](size_t, size_t, size_t, size_t, size_t) { return std::byte{}; });
  return counter.size;
}

size_t Context::get_state(int32_t sequence, void* to, size_t size) {
  if (watch != nullptr) watch(size);
  Sequence& self = of(sequence);
  Writer out;
  write_state(out, model_, static_cast<uint32_t>(sequence), positions_of(sequence),
              static_cast<uint32_t>(last_position(sequence)),
              [&](size_t cache, size_t tensor, size_t row, size_t position, size_t byte) {
                return at(self, cache, tensor, row, position, byte);
              });
  if (!fails()) {
    if (size < out.bytes.size()) return 0;
    std::memcpy(to, out.bytes.data(), out.bytes.size());
    return out.bytes.size();
  }
  if (way_ == 0) return 0;
  const size_t written = std::min(size, out.bytes.size() - (way_ == 1 ? 5 : 0));
  if (way_ == 2) out.bytes[4] = std::byte{99};                              // the sequence
  if (way_ == 3) out.bytes[out.numbers[3 + sequence % 2]] ^= std::byte{1};  // another number
  std::memcpy(to, out.bytes.data(), written);
  return written;
}

size_t Context::set_state(int32_t sequence, const void* from, size_t size) {
  if (watch != nullptr) watch(size);
  Sequence& self = of(sequence);
  const bool fault = fails();
  if (fault && way_ == 0) return 0;
  self.length = 0;
  Reader in{{static_cast<const std::byte*>(from), size}};
  const auto number = [&](size_t at) {
    uint32_t n = 0;
    if (at + sizeof n <= size) std::memcpy(&n, &in.bytes[at], sizeof n);
    return n;
  };
  const uint32_t own = model_.streams == 1 ? 0 : static_cast<uint32_t>(sequence);
  const size_t cells = 12 + 4 * size_t{own};
  const uint32_t last = number(12);
  const uint32_t n = model_.form.tokens ? number(cells) : last + 1;
  if (n == 0 || n > capacity_) return 0;
  std::vector<uint32_t> positions(n);
  for (uint32_t i = 0; i < n && model_.form.tokens; i++)
    positions[i] = number(cells + 4 + 12 * size_t{i});
  const uint32_t first = *std::min_element(positions.begin(), positions.end());
  for (const uint32_t position : positions)
    if (position - first >= n) return 0;
  self.first = static_cast<int32_t>(first);
  write_state(
      in, model_, static_cast<uint32_t>(sequence), positions, first + n - 1,
      [&](size_t cache, size_t tensor, size_t row, size_t position, size_t byte) -> std::byte& {
        return at(self, cache, tensor, row, position, byte);
      });
  if (!in.good || in.at != size) return 0;
  self.length = static_cast<int32_t>(n);
  self.window_from = model_.form.window > 0 ? static_cast<int32_t>(window_begin(model_, n)) : 0;
  // What was restored before it failed.
  if (fault) self.length = std::max(1, self.length / 2);
  return fault ? way_ == 1 ? 0 : size - 1 : size;
}

}  // namespace fake

// ---- The functions of llama.cpp -----------------------------------------------------------------

using fake::Context;

extern "C" {

const Context* llama_get_model(const Context* context) { return context; }
const Context* llama_get_memory(const Context* context) { return context; }
uint32_t llama_n_ctx_seq(const Context* context) { return context->capacity(); }
uint32_t llama_n_batch(const Context*) { return 64; }
uint32_t llama_n_seq_max(const Context* context) { return context->sequence_count(); }
bool llama_model_is_recurrent(const Context* model) { return !model->model().form.tokens; }
bool llama_model_is_hybrid(const Context* model) {
  return model->model().form.tokens && model->model().form.recurrent;
}
bool llama_model_has_encoder(const Context*) { return false; }
int32_t llama_model_n_swa(const Context* model) { return model->model().form.window; }
int32_t llama_model_rope_type(const Context*) { return 0; }
int32_t llama_model_n_ctx_train(const Context*) { return 4096; }
const Context* llama_model_get_vocab(const Context* model) { return model; }
int32_t llama_vocab_n_tokens(const Context*) { return fake::words; }
int32_t llama_model_desc(const Context*, char* text, size_t size) {
  return std::snprintf(text, size, "a fake");
}
uint64_t llama_model_size(const Context*) { return 1; }
int32_t llama_model_meta_count(const Context*) { return 1; }
int32_t llama_model_meta_key_by_index(const Context*, int32_t, char* text, size_t size) {
  return std::snprintf(text, size, "key");
}
int32_t llama_model_meta_val_str_by_index(const Context*, int32_t, char* text, size_t size) {
  return std::snprintf(text, size, "value");
}

Context::Batch llama_batch_init(int32_t tokens, int32_t, int32_t sequences) {
  const auto n = static_cast<size_t>(tokens);
  Context::Batch batch{};
  const auto numbers = [&] { return static_cast<int32_t*>(std::calloc(n, sizeof(int32_t))); };
  batch.token = numbers(), batch.position = numbers(), batch.sequences = numbers();
  batch.sequence = static_cast<int32_t**>(std::calloc(n + 1, sizeof(int32_t*)));
  for (size_t i = 0; i < n; i++)
    batch.sequence[i] =
        static_cast<int32_t*>(std::calloc(static_cast<size_t>(sequences), sizeof(int32_t)));
  batch.output = static_cast<int8_t*>(std::calloc(n, 1));
  return batch;
}

void llama_batch_free(Context::Batch batch) {
  for (int32_t** one = batch.sequence; *one != nullptr; one++) std::free(*one);
  for (void* const all : {static_cast<void*>(batch.token), static_cast<void*>(batch.position),
                          static_cast<void*>(batch.sequences), static_cast<void*>(batch.sequence),
                          static_cast<void*>(batch.output)})
    std::free(all);
}

int32_t llama_decode(Context* context, Context::Batch batch) {
  const fake::Unrefused unrefused;
  return context->decode(batch);
}
int32_t llama_memory_seq_pos_min(const Context* context, int32_t sequence) {
  return context->first_position(sequence);
}
int32_t llama_memory_seq_pos_max(const Context* context, int32_t sequence) {
  return context->last_position(sequence);
}
void llama_memory_seq_cp(Context* context, int32_t from, int32_t to, int32_t first, int32_t end) {
  if (!context->ignores_copies) context->copy(from, to, first, end);
}
bool llama_memory_seq_rm(Context* context, int32_t sequence, int32_t first, int32_t end) {
  if (first > 0 || end >= 0) fake::stop("only whole sequences are removed");
  context->clear(sequence);
  return true;
}

size_t llama_state_seq_get_size_ext(Context* context, int32_t sequence, uint32_t) {
  const fake::Unrefused unrefused;
  const size_t size = context->state_size(sequence);
  if (!context->fails()) return size;
  const size_t wrong[] = {0, size - 5, size + 5, SIZE_MAX / 2};
  return wrong[context->way()];
}
size_t llama_state_seq_get_data_ext(Context* context, void* to, size_t size, int32_t sequence,
                                    uint32_t) {
  const fake::Unrefused unrefused;
  return context->get_state(sequence, to, size);
}
size_t llama_state_seq_set_data_ext(Context* context, const void* from, size_t size,
                                    int32_t sequence, uint32_t) {
  const fake::Unrefused unrefused;
  return context->set_state(sequence, from, size);
}

}  // extern "C"
