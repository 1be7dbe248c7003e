// States of sequences of llama.cpp, as libpagedkv-llama parses them. The first four bytes choose
// the form that is expected, the sequence and its first position; the rest is the state. It is
// refused, or it becomes blocks and a state again, which has the same blocks.
#include <algorithm>

#include "../bindings/engines/llama.cpp/recall/failure.h"
#include "../bindings/engines/llama.cpp/recall/state.h"
#include "target.h"

namespace {

using namespace pagedkv_llama;
using Bytes = std::vector<std::byte>;

struct Blocks {
  explicit Blocks(const State& state) : end(state.shape().end_bytes() + 1) {
    const Shape& shape = state.shape();
    constexpr size_t block_size = 16;
    for (size_t first = 0; shape.form.tokens && first < state.tokens(); first += block_size) {
      const size_t n = std::min(block_size, state.tokens() - first);
      blocks.emplace_back(block_size * shape.token_bytes());
      state.cut(first, n, block_size, blocks.back().data());
    }
    state.cut_end(end.data());
  }
  void paste(const State& state) const {
    for (size_t i = 0; i < blocks.size(); i++)
      state.paste(i * 16, std::min<size_t>(16, state.tokens() - i * 16), 16, blocks[i].data());
    state.paste_end(end.data());
  }
  bool operator==(const Blocks&) const = default;

  std::vector<Bytes> blocks;
  Bytes end;
};

void parse(std::span<std::byte> bytes, int32_t sequence, const Form& form, int32_t first) {
  const State state(bytes, sequence, form, first);
  EXPECT_GT(state.tokens(), 0u);
  size_t values = 0;
  for (const auto tensor : state.tensors()) values += tensor.size();
  EXPECT_LE(values, bytes.size());
  // An end has room for a whole window, whose bytes the state need not have.
  if (state.shape().end_bytes() > 1 << 20 || state.shape().token_bytes() > 1 << 20) return;
  const Blocks blocks(state);
  if (first != 0) return;

  const Buffer made = make_state(state.shape(), sequence, static_cast<uint32_t>(state.tokens()));
  EXPECT_EQ(bytes.size(), made.bytes().size());
  const State again(made.bytes(), sequence, form);
  EXPECT_TRUE(again.shape() == state.shape() && again.tokens() == state.tokens());
  blocks.paste(again);
  EXPECT_TRUE(Blocks(again) == blocks);
}

template <class Body>
bool refused(Body body) {
  try {
    body();
    return false;
  } catch (const Failure& failure) {
    EXPECT_EQ(PKV_MISMATCH, failure.status) << failure.sentence;
    return true;
  }
}

}  // namespace

FUZZ_TARGET(const uint8_t* data, size_t size) {
  if (size < 4) return;
  Form form;
  form.recurrent = (data[0] & 1) != 0;
  form.tokens = !form.recurrent || (data[0] & 2) != 0;
  form.window = form.tokens ? data[1] : 0;
  form.values = (data[0] & 4) == 0;
  form.rotations = (data[0] & 8) != 0;
  form.chunked = form.window > 0 && (data[0] & 16) != 0;
  const int32_t sequence = data[2] % 4, first = (data[2] & 4) != 0 ? data[3] * 1000003 : 0;
  const auto* const first_byte = reinterpret_cast<const std::byte*>(data);
  Bytes bytes(first_byte + 4, first_byte + size);
  const bool bad = refused([&] { parse(bytes, sequence, form, first); });
  refused([&] {
    Form found = recognise(bytes, sequence, form, first);
    EXPECT_FALSE(refused([&] { parse(bytes, sequence, found, first); }));
  });
  if (!bad) {
    EXPECT_FALSE(refused([&] { recognise(bytes, sequence, form, first); }));
  }
}
