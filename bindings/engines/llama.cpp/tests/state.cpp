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
#include "fake_state.h"

namespace {

using namespace pagedkv_llama;
using fake::Bytes, fake::Cache, fake::Model, fake::Writer;

#define CHECK(good)                                            \
  if (!(good)) {                                               \
    std::printf("%s:%d: not %s\n", __FILE__, __LINE__, #good); \
    std::exit(1);                                              \
  }

std::mt19937 random_bits(60);
uint32_t random_number(uint32_t from, uint32_t to) {
  return std::uniform_int_distribution<uint32_t>(from, to)(random_bits);
}

Model random_model() {
  Model model;
  model.streams = random_number(1, 3);
  model.transposed = random_number(0, 1) == 1;
  const uint32_t kind = random_number(0, 5);
  model.form.tokens = kind != 5;
  model.form.recurrent = kind >= 3;
  model.form.window = kind == 1 || kind == 2 || kind == 4 ? int32_t(random_number(1, 60)) : 0;
  model.form.chunked = kind == 2;
  model.form.values = kind == 5 || random_number(0, 4) > 0;
  model.form.rotations = kind != 5 && random_number(0, 1) == 1;
  const uint32_t caches = model.form.tokens ? model.form.window > 0 ? 2 : 1 : 0;
  for (uint32_t c = 0; c < caches; c++) {
    Cache& cache = model.caches.emplace_back();
    const uint32_t layers = random_number(1, 4);
    for (uint32_t l = 0; l < layers; l++) {
      cache.key_bytes.push_back(random_number(1, 70));
      cache.value_rows.push_back(random_number(1, 20));
    }
  }
  if (model.form.recurrent)
    for (uint32_t t = 0; t < 4; t++) model.recurrent_bytes.push_back(random_number(t % 2, 300));
  return model;
}

// A state whose bytes depend on all that they are of.
Writer write(const Model& model, uint32_t sequence, const std::vector<uint32_t>& positions) {
  const auto last = static_cast<uint32_t>(positions.size() - 1);
  Writer out;
  fake::write_state(out, model, sequence, positions, last,
                    [](size_t cache, size_t tensor, size_t row, size_t position, size_t byte) {
                      return static_cast<std::byte>((cache * 8 + tensor) * 31 + row * 17 +
                                                    position * 7 + byte * 3 + position / 37);
                    });
  return out;
}

// Returns the sentence of the refusal, or "".
std::string refusal(Bytes bytes, uint32_t sequence, const Form& form) {
  try {
    const State state(bytes, static_cast<int32_t>(sequence), form);
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

// The form that open would find: it knows whether there are windows and recurrent layers.
Form recognised(Bytes bytes, uint32_t sequence, const Form& form) {
  return recognise(bytes, static_cast<int32_t>(sequence),
                   {.tokens = form.tokens, .window = form.window, .recurrent = form.recurrent}, 0);
}

// State -> blocks -> state of each prefix, with cells in any order. With windows or recurrent
// layers, each prefix has its own end.
void round_trip() {
  const Model model = random_model();
  const uint32_t sequence = random_number(0, model.streams - 1);
  const auto of = static_cast<int32_t>(sequence);
  const uint32_t n = random_number(1, 150), block_size = 16 * random_number(1, 3);
  std::vector<uint32_t> positions = positions_up_to(n);
  if (random_number(0, 2) > 0) std::shuffle(positions.begin(), positions.end(), random_bits);

  Bytes bytes = write(model, sequence, positions).bytes;
  const Form form = recognised(bytes, sequence, model.form);
  // A window may begin with the chunk.
  CHECK(form == model.form || (model.form.chunked && State(bytes, of, form).tokens() == n));
  const State state(bytes, of, model.form);
  const Shape& shape = state.shape();
  CHECK(state.tokens() == n);
  const size_t block_bytes = block_size * shape.token_bytes();
  std::vector<Bytes> blocks;
  for (size_t first = 0; first < n && model.form.tokens; first += block_size) {
    blocks.emplace_back(block_bytes);
    state.cut(first, std::min<size_t>(block_size, n - first), block_size, blocks.back().data());
  }
  for (uint32_t length = 1; length <= n; length += random_number(1, 9)) {
    std::vector<uint32_t> some = positions;
    std::erase_if(some, [&](uint32_t position) { return position >= length; });
    Bytes computed = write(model, sequence, some).bytes;
    Bytes end(shape.end_bytes() + 1, std::byte{0x55});
    State(computed, of, model.form).cut_end(end.data());
    CHECK(end.back() == std::byte{0x55});

    const Buffer made = make_state(shape, of, length);
    const State part(made.bytes(), of, model.form);
    CHECK(part.shape() == shape && part.tokens() == length);
    for (size_t first = 0; first < length && model.form.tokens; first += block_size)
      part.paste(first, std::min<size_t>(block_size, length - first), block_size,
                 blocks[first / block_size].data());
    part.paste_end(end.data());
    CHECK(equal(made.bytes(), write(model, sequence, positions_up_to(length)).bytes));
  }
}

// What is damaged is refused, or has another shape than all states of its context, or another
// number of tokens: the caller compares them.
bool noticed(Bytes bad, const Shape& shape, size_t tokens, uint32_t sequence) {
  if (!refusal(bad, sequence, shape.form).empty()) return true;
  const State state(bad, static_cast<int32_t>(sequence), shape.form);
  return state.shape() != shape || state.tokens() != tokens;
}

void damage() {
  const Model model = random_model();
  const uint32_t sequence = random_number(0, model.streams - 1);
  Writer good = write(model, sequence, positions_up_to(random_number(1, 20)));
  CHECK(refusal(good.bytes, sequence + 1, model.form) != "");
  const State state(good.bytes, static_cast<int32_t>(sequence), model.form);
  const Shape& shape = state.shape();
  for (size_t size = 0; size < good.bytes.size(); size++) {
    const Bytes part(good.bytes.begin(), good.bytes.begin() + static_cast<ptrdiff_t>(size));
    CHECK(noticed(part, shape, state.tokens(), sequence));
  }
  Bytes longer = good.bytes;
  longer.resize(longer.size() + random_number(1, 40));
  CHECK(noticed(longer, shape, state.tokens(), sequence));
  for (const size_t at : good.numbers)
    for (size_t bit = 0; bit < 32; bit++) {
      Bytes bad = good.bytes;
      bad[at + bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      CHECK(noticed(bad, shape, state.tokens(), sequence));
    }
}

void says(const char* what, std::function<void(Bytes&)> change) {
  Model model;
  model.caches = {{.key_bytes = {8}, .value_rows = {4}}};
  Bytes bytes = write(model, 0, positions_up_to(4)).bytes;
  change(bytes);
  const std::string sentence = refusal(bytes, 0, model.form);
  if (sentence.find(what) != std::string::npos) return;
  std::printf("not \"%s\": %s\n", what, sentence.c_str());
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 60;
  for (int i = 0; i < rounds; i++) round_trip(), damage();
  says("this llama.cpp is not known", [](Bytes& bytes) { bytes[0] = std::byte{0}; });
  says("a kind of memory that is not known", [](Bytes& bytes) {
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
