// The parser of llama.cpp's states: synthetic states of all layouts become blocks and states again;
// what is cut short or changed is refused, and nothing outside of it is read (run it with a
// sanitizer).
#include "../recall/state.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>

#include "../recall/failure.h"

namespace {

using namespace pagedkv_llama;
using Bytes = std::vector<std::byte>;

#define CHECK(good)                                            \
  if (!(good)) {                                               \
    std::printf("%s:%d: not %s\n", __FILE__, __LINE__, #good); \
    std::exit(1);                                              \
  }

std::mt19937 random_bits(60);
uint32_t random_number(uint32_t from, uint32_t to) {
  return std::uniform_int_distribution<uint32_t>(from, to)(random_bits);
}

// Writes a state as llama.cpp 0.5 does. It is written apart from make_state().
struct Writer {
  Bytes bytes;
  std::vector<size_t> numbers;  // where the numbers of the header are

  template <class Number>
  void number(Number n) {
    numbers.push_back(bytes.size());
    raw(&n, sizeof n);
  }
  void raw(const void* from, size_t size) {
    const auto* const first = static_cast<const std::byte*>(from);
    bytes.insert(bytes.end(), first, first + size);
  }
};

struct Model {
  uint32_t streams;
  bool transposed, has_values;
  std::vector<uint32_t> key_bytes, value_rows;
  static constexpr uint32_t value_element = 2;
};

Model random_model() {
  Model model{.streams = random_number(1, 3),
              .transposed = random_number(0, 1) == 1,
              .has_values = random_number(0, 4) > 0,
              .key_bytes = {},
              .value_rows = {}};
  const uint32_t layers = random_number(1, 4);
  for (uint32_t l = 0; l < layers; l++) {
    model.key_bytes.push_back(random_number(1, 70));
    model.value_rows.push_back(random_number(1, 20));
  }
  return model;
}

// One byte of a tensor that depends on all that it is of.
std::byte element(size_t tensor, size_t row, size_t position, size_t byte) {
  return static_cast<std::byte>(tensor * 31 + row * 17 + position * 7 + byte * 3 + position / 37);
}

Writer write(const Model& model, uint32_t sequence, const std::vector<uint32_t>& positions) {
  Writer out;
  out.number(uint32_t{0xaf143cd8}), out.number(sequence), out.number(model.streams);
  for (uint32_t stream = 0; stream < model.streams; stream++) {
    const bool own = stream == (model.streams == 1 ? 0 : sequence);
    out.number(own ? static_cast<uint32_t>(positions.size()) : 0u);
    if (!own) continue;
    for (const uint32_t position : positions)
      out.number(position), out.number(1u), out.number(sequence);
    const size_t layers = model.key_bytes.size();
    out.number(uint32_t{model.transposed}), out.number(static_cast<uint32_t>(layers));
    for (size_t l = 0; l < layers; l++) {
      out.number(1), out.number(uint64_t{model.key_bytes[l]});
      for (const uint32_t position : positions)
        for (uint32_t b = 0; b < model.key_bytes[l]; b++)
          out.bytes.push_back(element(l, 0, position, b));
    }
    for (size_t l = 0; l < layers && model.has_values; l++) {
      const uint32_t rows = model.value_rows[l], size = Model::value_element;
      out.number(1);
      if (model.transposed)
        out.number(size), out.number(rows);
      else
        out.number(uint64_t{rows * size});
      // Not transposed, all rows of a cell follow each other.
      for (size_t i = 0; i < positions.size() * rows; i++) {
        const size_t n = positions.size();
        const size_t cell = model.transposed ? i % n : i / rows;
        const size_t row = model.transposed ? i / n : i % rows;
        for (uint32_t b = 0; b < size; b++)
          out.bytes.push_back(element(layers + l, row, positions[cell], b));
      }
    }
  }
  return out;
}

// Returns the sentence of the refusal, or "".
std::string refusal(Bytes bytes, uint32_t sequence) {
  try {
    const State state(bytes, static_cast<int32_t>(sequence));
    return "";
  } catch (const Failure& failure) {
    CHECK(failure.status == PKV_MISMATCH);
    return failure.sentence;
  }
}

bool equal(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

std::vector<uint32_t> positions_up_to(uint32_t n) {
  std::vector<uint32_t> positions(n);
  std::iota(positions.begin(), positions.end(), 0u);
  return positions;
}

// State -> blocks -> state of each prefix, with cells in any order.
void round_trip() {
  const Model model = random_model();
  const uint32_t sequence = random_number(0, model.streams - 1);
  const uint32_t n = random_number(1, 150), block_size = 16 * random_number(1, 3);
  std::vector<uint32_t> positions = positions_up_to(n);
  if (random_number(0, 2) > 0) std::shuffle(positions.begin(), positions.end(), random_bits);

  Bytes bytes = write(model, sequence, positions).bytes;
  const State state(bytes, static_cast<int32_t>(sequence));
  CHECK(state.cells() == n && state.shape().streams == model.streams);
  const size_t block_bytes = block_size * state.shape().token_bytes();
  std::vector<Bytes> blocks((n + block_size - 1) / block_size, Bytes(block_bytes));
  for (size_t i = 0; i < blocks.size(); i++) {
    const size_t first = i * block_size;
    state.cut(first, std::min<size_t>(block_size, n - first), block_size, blocks[i].data());
  }
  for (uint32_t length = 1; length <= n; length += random_number(1, 9)) {
    const Buffer made = make_state(state.shape(), static_cast<int32_t>(sequence), length);
    const State part(made.bytes(), static_cast<int32_t>(sequence));
    CHECK(part.shape() == state.shape() && part.cells() == length);
    for (size_t first = 0; first < length; first += block_size)
      part.paste(first, std::min<size_t>(block_size, length - first), block_size,
                 blocks[first / block_size].data());
    CHECK(equal(made.bytes(), write(model, sequence, positions_up_to(length)).bytes));
  }
}

// What is damaged is refused, or has another shape than all states of its context: the caller
// compares it.
bool noticed(Bytes bad, const Shape& shape, uint32_t sequence) {
  if (!refusal(bad, sequence).empty()) return true;
  return State(bad, static_cast<int32_t>(sequence)).shape() != shape;
}

void damage() {
  const Model model = random_model();
  const uint32_t sequence = random_number(0, model.streams - 1);
  Writer good = write(model, sequence, positions_up_to(random_number(1, 20)));
  CHECK(refusal(good.bytes, sequence + 1) != "");
  const Shape shape = State(good.bytes, static_cast<int32_t>(sequence)).shape();
  for (size_t size = 0; size < good.bytes.size(); size++) {
    const Bytes part(good.bytes.begin(), good.bytes.begin() + static_cast<ptrdiff_t>(size));
    CHECK(noticed(part, shape, sequence));
  }
  Bytes longer = good.bytes;
  longer.resize(longer.size() + random_number(1, 40));
  CHECK(noticed(longer, shape, sequence));
  for (const size_t at : good.numbers)
    for (size_t bit = 0; bit < 32; bit++) {
      Bytes bad = good.bytes;
      bad[at + bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      CHECK(noticed(bad, shape, sequence));
    }
}

void says(const char* what, std::function<void(Bytes&)> change) {
  Model model{
      .streams = 1, .transposed = false, .has_values = true, .key_bytes = {8}, .value_rows = {4}};
  Bytes bytes = write(model, 0, positions_up_to(4)).bytes;
  change(bytes);
  const std::string sentence = refusal(bytes, 0);
  if (sentence.find(what) != std::string::npos) return;
  std::printf("not \"%s\": %s\n", what, sentence.c_str());
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 300;
  for (int i = 0; i < rounds; i++) round_trip(), damage();
  says("this llama.cpp is not known", [](Bytes& bytes) { bytes[0] = std::byte{0}; });
  says("more than one attention cache", [](Bytes& bytes) {
    const Bytes copy(bytes.begin() + 8, bytes.end());
    bytes.insert(bytes.end(), copy.begin(), copy.end());
  });
  says("each one once", [](Bytes& bytes) { bytes[16] = std::byte{1}; });
  says("sequence", [](Bytes& bytes) { bytes[20] = std::byte{2}; });
  says("none of the 1 streams has cells", [](Bytes& bytes) {
    bytes.resize(16);
    bytes[12] = std::byte{0};
  });
  std::printf("%d round trips\n", rounds);
}
