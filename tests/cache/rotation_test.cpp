// Groups with a rotation give the attention of the naive model, which has no rotation. Stored rows
// are rotated, and are read back as they were given.
#include <algorithm>
#include <cmath>

#include "host.h"
#include "memory_kinds.h"
#include "reference.h"

namespace cache_test::rotation_test {
namespace {

Cache make(const Model& model, const MemoryKind& kind, pkv_isa isa = PKV_ISA_AUTO) {
  ModelConfig config = config_of(model, 64);
  config.layout = kind.layout;
  config.isa = isa;
  return create(config);
}

// An orthogonal matrix: rotations by one radian in each plane of dims d and d + 1, in this order.
std::vector<float> turns(uint32_t dim) {
  std::vector<double> matrix(size_t{dim} * dim);
  for (uint32_t d = 0; d < dim; d++) matrix[size_t{d} * dim + d] = 1;
  for (uint32_t d = 0; d + 1 < dim; d++) {
    for (uint32_t row = 0; row < dim; row++) {
      double& a = matrix[size_t{row} * dim + d];
      double& b = matrix[size_t{row} * dim + d + 1];
      const double before = a;
      a = before * std::cos(1) - b * std::sin(1);
      b = before * std::sin(1) + b * std::cos(1);
    }
  }
  return {matrix.begin(), matrix.end()};
}

struct Case {
  const char* name;
  Model model;
};

// Dims with runs of 64, 16 and 128, and the dims of DeepSeek's latent attention.
std::vector<Case> cases(pkv_dtype dtype) {
  static const std::vector<float> of_48 = turns(48), of_32 = turns(32);
  static const auto both =
                        made<pkv_rotation_matrices>({.key = of_48.data(), .value = of_32.data()}),
                    of_k = made<pkv_rotation_matrices>({.key = of_48.data()}),
                    of_v = made<pkv_rotation_matrices>({.value = of_32.data()});
  const auto none = static_cast<pkv_dtype>(0);
  constexpr pkv_layer_kind kv = PKV_LAYERS_KV;
  const pkv_rotation hadamard = PKV_ROTATION_HADAMARD, other = PKV_ROTATION_NONE;
  return {{"64 and 64", {1, 4, 2, 64, 64, dtype, 0, none, 0, kv, hadamard}},
          {"48 and 80", {1, 6, 2, 48, 80, dtype, 20, none, 3, kv, hadamard}},
          {"128 and 16", {1, 17, 1, 128, 16, dtype, 0, none, 0, kv, hadamard}},
          {"latent", {1, 8, 1, 576, 512, dtype, 0, none, 0, PKV_LAYERS_LATENT, hadamard}},
          {"matrices", {1, 4, 2, 48, 32, dtype, 0, none, 0, kv, other, &both}},
          {"of K", {1, 4, 2, 48, 32, dtype, 0, none, 0, kv, other, &of_k}},
          {"of V", {1, 4, 2, 48, 32, dtype, 0, none, 0, kv, other, &of_v}}};
}

// Root mean square of the difference, relative to that of the rows that are expected.
double difference(const Rows& expected, const Rows& found) {
  double sum = 0, all = 0;
  expected.each([&](size_t r, uint32_t h, uint32_t d) {
    const double x = double{expected.get(r, h, d)}, error = x - double{found.get(r, h, d)};
    sum += error * error;
    all += x * x;
  });
  return std::sqrt(sum / all);
}

// Makes a step. Returns the difference of its outputs from the reference over the rows that
// materialize returns.
double step_error(pkv_cache cache, pkv_session session, const Model& model, uint32_t tokens,
                  Random& random) {
  Batch batch = begin(cache, {session}, {tokens});
  KeysValues rows = random_rows(model, tokens, random);
  write(batch, 0, model, rows);
  Rows q(tokens, model.query_heads, model.key_dim), out(tokens, model.query_heads, model.values()),
      expected = out;
  attend(batch, 0, q.fill(random), out);
  const uint64_t length = length_of(session) + tokens;
  KeysValues all{Rows(length, model.kv_heads, model.key_dim),
                 Rows(length, model.kv_heads, model.values())};
  for (uint64_t p = 0; p < length; p++) {  // No query sees what left the window.
    const pkv_tensor k = all.k.tensor(p), v = all.v.tensor(p);
    const pkv_status status = pkv_session_read(session, 0, p, 1, &k, &v);
    if (status != PKV_OUT_OF_RANGE || model.window == 0) CHECK(status);
  }
  const Doubles queries(q), keys(all.k), values(all.v);
  const Attention attention = attention_of(model);
  for (uint32_t i = 0; i < tokens; i++) {
    for (uint32_t head = 0; head < model.query_heads; head++) {
      const ReferenceRow row(queries.row(i, head),
                             {i, head, head / (model.query_heads / model.kv_heads),
                              length - tokens + i, length - tokens, length},
                             keys, values, attention);
      for (uint32_t d = 0; d < model.values(); d++)
        expected.set(i, head, d, static_cast<float>(row.out[d]));
    }
  }
  commit(batch);
  return difference(expected, out);
}

class Rotation : public testing::TestWithParam<pkv_dtype> {};

// Queries and weights are rounded to 15 bits where K and V are integers, queries to 16 for BF16.
// Each case has every second pair of a kind of memory and an instruction set, and the next case the
// others.
TEST_P(Rotation, AttentionEqualsTheReferenceOverWhatIsStored) {
  const double most = integers(GetParam()) ? 3e-4 : GetParam() == PKV_BF16 ? 3e-5 : 3e-6;
  unsigned case_turn = static_cast<unsigned>(GetParam());
  for (const Case& each : cases(GetParam())) {
    unsigned isa_turn = case_turn++;
    for (const pkv_isa isa : supported_isas()) {
      unsigned turn = isa_turn++;
      for (const MemoryKind& kind : memory_kinds) {
        if (turn++ % 2 == 0) continue;
        if (kind.layout == PKV_LAYOUT_PLAIN && isa == PKV_ISA_SCALAR) continue;  // the slowest
        SCOPED_TRACE(testing::Message()
                     << each.name << ", " << kind.name << ", " << pkv_isa_name(isa));
        Random random(31);
        Cache cache = make(each.model, kind, isa);
        Session session = open(cache);
        for (const uint32_t tokens : {37u, 1u, 2u, 9u})
          EXPECT_LE(step_error(cache, session, each.model, tokens, random), most) << tokens;
        Session child = fork(session);
        EXPECT_LE(step_error(cache, child, each.model, 3, random), most);
      }
    }
  }
}

// The approximate relative error of a type on rows of random numbers.
double loss(pkv_dtype dtype) {
  switch (dtype) {
    case PKV_F32:
      return 1e-6;
    case PKV_F16:
      return 3e-4;
    case PKV_BF16:
      return 2.5e-3;
    case PKV_INT8:
      return 1e-2;
    case PKV_INT4:
      return 0.13;
    case PKV_FP8_E4M3:
      return 0.04;
    case PKV_FP8_E5M2:
      return 0.08;
    default:
      break;
  }
  return 0;
}

// A step of 40 tokens in a cache of F32 without a rotation and in one with it.
struct Outputs {
  Rows expected, found;
  KeysValues given, back;
};

Outputs outputs_of(const Model& model, const MemoryKind& kind) {
  Model naive = model;
  naive.rotation = PKV_ROTATION_NONE;
  naive.rotation_matrices = nullptr;
  naive.dtype = PKV_F32;
  Random random(7);
  KeysValues rows = random_rows(model, 40, random);
  Rows q(40, model.query_heads, model.key_dim);
  q.fill(random);
  KeysValues back;
  const auto run = [&](const Model& one) {
    Cache cache = make(one, kind);
    Session session = open(cache);
    Batch batch = begin(cache, {session}, {40});
    KeysValues written = rows;
    write(batch, 0, one, written);
    Rows out(40, model.query_heads, model.values());
    attend(batch, 0, q, out);
    commit(batch);
    back = materialize(session, 0, one, std::min(40u, model.window == 0 ? 0u : 40 - model.window),
                       model.window == 0 ? 40 : model.window);
    return out;
  };
  Outputs result{run(naive), {}, {}, {}};
  result.given = back;
  result.found = run(model);
  result.back = back;
  return result;
}

// Here the naive model gets the written rows. A rotation that is missing on one side gives an error
// of about 1.
TEST_P(Rotation, ChangesNothingThatCallersSee) {
  for (const MemoryKind& kind : memory_kinds) {
    for (const Case& each : cases(GetParam())) {
      SCOPED_TRACE(testing::Message() << each.name << ", " << kind.name);
      const Outputs outputs = outputs_of(each.model, kind);
      EXPECT_LE(difference(outputs.expected, outputs.found), 1.5 * loss(GetParam()));
      EXPECT_LE(difference(outputs.given.k, outputs.back.k), loss(GetParam()));
      EXPECT_LE(difference(outputs.given.v, outputs.back.v), loss(GetParam()));
    }
  }
}

TEST_P(Rotation, MemoryOfTheCallersGivesTheBitsOfACache) {
  for (const pkv_layout layout : {PKV_LAYOUT_PACKED, PKV_LAYOUT_PLAIN}) {
    for (const Case& each : cases(GetParam())) {
      SCOPED_TRACE(testing::Message() << each.name << ", layout " << layout);
      const Model& model = each.model;
      if (model.latent() || model.window != 0) continue;
      Random random(9);
      KeysValues rows = random_rows(model, 40, random);
      Rows q(40, model.query_heads, model.key_dim), expected(40, model.query_heads, model.values()),
          of_view = expected, of_memory = expected;
      q.fill(random);

      Cache cache = make(model, {"", layout});
      Session session = open(cache);
      Batch batch = begin(cache, {session}, {40});
      write(batch, 0, model, rows);
      attend(batch, 0, q, expected);
      commit(batch);
      const pkv_kv_view view = kv_view_of(cache, 0);
      EXPECT_EQ(model.rotation, view.rotation);

      HostMemory memory(model, layout, 16, 3);
      EXPECT_EQ(model.rotation, memory.view.rotation);
      const HostSequences sequences(memory, model.query_heads, {40}, {40}, random);
      const pkv_kv_sequences list = sequences.get();
      const pkv_tensor k = rows.k.tensor(), v = rows.v.tensor(), queries = q.tensor();
      const auto attend_to = [&](const pkv_kv_view& kv, const pkv_kv_sequences& which, Rows& out) {
        const pkv_tensor to = out.tensor();
        CHECK(pkv_kv_attend(nullptr, &kv, &which, nullptr, &queries, &to, nullptr));
      };
      CHECK(pkv_kv_write(nullptr, &memory.view, &list, &k, &v));
      attend_to(memory.view, list, of_memory);
      EXPECT_TRUE(expected == of_memory);

      const std::vector<uint32_t> table = block_table(session, 0);
      pkv_kv_sequences of_session = list;
      of_session.block_tables = table.data();
      of_session.block_table_stride = table.size();
      attend_to(view, of_session, of_view);
      EXPECT_TRUE(expected == of_view);

      std::vector<int64_t> slots;
      for (uint64_t p = 0; p < 40; p++) slots.push_back(sequences.slot(0, p));
      KeysValues read = rows_of(model, 40);
      const pkv_tensor k_read = read.k.tensor(), v_read = read.v.tensor();
      CHECK(pkv_kv_read_slots(nullptr, &memory.view, 40, slots.data(), &k_read, &v_read));
      EXPECT_TRUE(materialize(session, 0, model, 0, 40) == read);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Rotation, testing::ValuesIn(stored_dtypes),
                         [](const auto& test) { return name_of(test.param); });

// Rows of a token-flat tensor, read by their address.
TEST(RotatedRows, AreStoredAsTheHeaderSays) {
  const Model model{1,
                    1,
                    1,
                    32,
                    16,
                    PKV_F32,
                    0,
                    static_cast<pkv_dtype>(0),
                    0,
                    PKV_LAYERS_KV,
                    PKV_ROTATION_HADAMARD};
  Cache cache = make(model, {"", PKV_LAYOUT_PLAIN});
  Session session = open(cache);
  KeysValues rows = rows_of(model, 1);
  rows.k.each([&](size_t r, uint32_t h, uint32_t d) { rows.k.set(r, h, d, d == 2 ? 1.0f : 0.0f); });
  rows.v.each([&](size_t r, uint32_t h, uint32_t d) { rows.v.set(r, h, d, d < 2 ? 4.0f : 0.0f); });
  Batch batch = begin(cache, {session}, {1});
  write(batch, 0, model, rows);
  commit(batch);
  const pkv_kv_view view = kv_view_of(cache, 0);
  const auto block = block_table(session, 0)[0];
  const float* const k = static_cast<const float*>(view.k) + block * view.k_block_stride;
  const float* const v = static_cast<const float*>(view.v) + block * view.v_block_stride;
  // 0x243F6A88 begins with the bits 0010: dim 2 has a minus, dims 0 and 1 have none.
  for (uint32_t d = 0; d < 32; d++)
    EXPECT_FLOAT_EQ((d / 2 % 2 == 0 ? -1.0f : 1.0f) / std::sqrt(32.0f), k[d]) << d;
  for (uint32_t d = 0; d < 16; d++) EXPECT_EQ(d % 2 == 0 ? 2.0f : 0.0f, v[d]) << d;
}

TEST(RotatedRows, ANumberThatIsNotFiniteSpreadsOverItsRunAlone) {
  const Model model{1,
                    1,
                    1,
                    48,
                    48,
                    PKV_F32,
                    0,
                    static_cast<pkv_dtype>(0),
                    0,
                    PKV_LAYERS_KV,
                    PKV_ROTATION_HADAMARD};
  Cache cache = make(model, memory_kinds[0]);
  Session session = open(cache);
  KeysValues rows = rows_of(model, 1);
  rows.k.each([&](size_t r, uint32_t h, uint32_t d) { rows.k.set(r, h, d, 0.5f); });
  rows.v = rows.k;
  rows.k.set(0, 0, 20, NAN);
  Batch batch = begin(cache, {session}, {1});
  write(batch, 0, model, rows);
  commit(batch);
  const KeysValues back = materialize(session, 0, model, 0, 1);
  for (uint32_t d = 0; d < 48; d++) {
    EXPECT_EQ(d / 16 == 1, std::isnan(back.k.get(0, 0, d))) << d;
    EXPECT_FLOAT_EQ(0.5f, back.v.get(0, 0, d)) << d;
  }
}

}  // namespace
}  // namespace cache_test::rotation_test
