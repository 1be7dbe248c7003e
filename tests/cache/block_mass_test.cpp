// The attention mass of blocks is the sum of the weights by definition, whatever queries see.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "host.h"

namespace cache_test::block_mass_test {
namespace {

constexpr uint32_t block_size = 16;

// The parameters of a call, and the queries that count.
struct Variant {
  const char* name;
  std::function<void(AttentionParams&)> change;
  bool drops = false;
};

const float slopes[] = {0.01f, 0.02f, 0.03f, 0.04f, 0.05f, 0.06f, 0.07f, 0.08f};
const float logits[] = {0.5f, 1, -1, 2, 0, 3, 0.1f, 0.2f};

const Variant variants[] = {
    {"plain", [](AttentionParams&) {}},
    {"bidirectional", [](AttentionParams& params) { params.bidirectional = 1; }},
    {"window", [](AttentionParams& params) { params.window = 40, params.sinks = 20; }},
    {"alibi", [](AttentionParams& params) { params.alibi_slopes = slopes; }},
    {"softcap", [](AttentionParams& params) { params.softcap = 2; }},
    {"sink_logits", [](AttentionParams& params) { params.sink_logits = logits; }},
    {"last_queries", [](AttentionParams& params) { params.own_mass.queries = 3; }},
    {"dropped", [](AttentionParams&) {}, true},
};

// A session whose last tokens are a step, with the queries and their results.
struct Step {
  pkv_session session;
  uint64_t start, first_row;
  uint32_t tokens;
};

class BlockMass : public testing::TestWithParam<pkv_isa> {
 protected:
  static bool dropped(uint64_t position) { return position / block_size % 3 == 1; }

  // Returns the mass by definition, from the keys as they are stored and the lse of the call.
  static std::vector<double> expected(const Model& model, const Step& step, const Rows& q,
                                      const std::vector<float>& lse, const AttentionParams& params,
                                      const Rows& k, bool drops, size_t size) {
    std::vector<double> mass(model.query_heads * size);
    const uint64_t length = step.start + step.tokens;
    const uint32_t counted = params.own_mass.queries == 0 ? step.tokens : params.own_mass.queries;
    for (uint32_t i = step.tokens - std::min(counted, step.tokens); i < step.tokens; i++) {
      const uint64_t position = step.start + i, row = step.first_row + i;
      for (uint32_t h = 0; h < model.query_heads; h++) {
        for (uint64_t j = 0; j < length; j++) {
          const bool near = params.window == 0 || j + params.window > position || j < params.sinks;
          if (!near || (params.bidirectional == 0 && j > position)) continue;
          if (drops && j < step.start / block_size * block_size && dropped(j)) continue;
          double score = 0;
          for (uint32_t d = 0; d < model.key_dim; d++)
            score += double{q.get(row, h, d)} *
                     double{k.get(j, h / (model.query_heads / model.kv_heads), d)};
          score /= std::sqrt(model.key_dim);
          if (params.softcap != 0) score = double{params.softcap} * std::tanh(score / 2);
          if (params.alibi_slopes != nullptr)
            score += double{slopes[h]} * (static_cast<double>(j) - static_cast<double>(position));
          mass[h * size + j / block_size] +=
              std::exp(score - double{lse[row * model.query_heads + h]});
        }
      }
    }
    return mass;
  }
};

TEST_P(BlockMass, IsTheSumOfTheWeights) {
  uint32_t here = 0;
  CHECK(pkv_isa_supported(GetParam(), &here));
  if (here == 0) GTEST_SKIP() << "not on this processor";
  const Model models[] = {{1, 4, 2, 32}, {1, 2, 2, 64, 0, PKV_BF16}, {1, 8, 1, 32, 0, PKV_INT8}};
  Random random(7);
  for (const Model& model : models) {
    for (const pkv_layout layout : {PKV_LAYOUT_PACKED, PKV_LAYOUT_PLAIN}) {
      for (const Variant& variant : variants) {
        for (const auto& tokens : {std::vector<uint32_t>{1, 3}, {40, 1}, {2, 160}}) {
          // Many queries are cut into chunks, which is the same for all variants.
          if (tokens[1] == 160 && (layout == PKV_LAYOUT_PLAIN || &variant != variants)) continue;
          SCOPED_TRACE(testing::Message()
                       << variant.name << ", dtype " << model.dtype << ", layout " << layout << ", "
                       << tokens[0] << " and " << tokens[1] << " tokens");
          ModelConfig config = config_of(model, 128);
          config.layout = layout;
          config.isa = GetParam();
          config.threads = 2;
          const Cache cache = create(config);
          const Session first = open(cache), second = open(cache);
          step(cache, first, model, 70, random);
          step(cache, second, model, 33, random);
          Step steps[] = {{first, 70, 0, tokens[0]}, {second, 33, tokens[0], tokens[1]}};
          const uint32_t rows = tokens[0] + tokens[1];
          Rows keys[] = {Rows(70 + tokens[0], model.kv_heads, model.key_dim),
                         Rows(33 + tokens[1], model.kv_heads, model.key_dim)};
          KeysValues fresh = random_rows(model, rows, random);
          {  // the stored keys, from a step that is aborted
            const Batch batch = begin(cache, {first, second}, tokens);
            write(batch, 0, model, fresh);
            for (size_t s = 0; s < 2; s++) {
              const pkv_tensor to = keys[s].tensor();
              CHECK(pkv_session_read(steps[s].session, 0, 0, steps[s].start + tokens[s], &to,
                                     nullptr));
            }
          }
          for (const Step& each : steps) {
            std::vector<uint32_t> blocks;
            for (uint32_t b = 0; b < each.start / block_size; b++)
              if (variant.drops && dropped(b * block_size)) blocks.push_back(b);
            CHECK(pkv_session_drop_blocks(each.session, 0, blocks.size(), blocks.data()));
          }
          const Batch batch = begin(cache, {first, second}, tokens);
          write(batch, 0, model, fresh);
          Rows q(rows, model.query_heads, model.key_dim),
              out(rows, model.query_heads, model.values()), same = out;
          q.fill(random);
          AttentionParams params;
          variant.change(params);
          std::vector<float> lse(rows * model.query_heads);
          params.lse = lse.data();
          const size_t size = 40;
          std::vector<float> mass(2 * model.query_heads * size, 7.0f), again = mass;
          const uint32_t counted = params.own_mass.queries;
          params.weigh(mass.data(), size).queries = counted;
          attend(batch, 0, q, out, &params);
          for (size_t s = 0; s < 2; s++) {
            const std::vector<double> wanted =
                expected(model, steps[s], q, lse, params, keys[s], variant.drops, size);
            const uint64_t blocks = (steps[s].start + tokens[s] + block_size - 1) / block_size;
            for (size_t i = 0; i < wanted.size(); i++)
              if (i % size >= blocks)
                ASSERT_EQ(7, mass[s * wanted.size() + i]) << "behind the last block";
              else
                ASSERT_NEAR(wanted[i], mass[s * wanted.size() + i], 0.02 * wanted[i] + 2e-3)
                    << "session " << s << ", head " << i / size << ", block " << i % size;
          }
          params.lse = nullptr;
          params.own_mass.masses = again.data();
          attend(batch, 0, q, same, &params);
          EXPECT_EQ(mass, again);
          EXPECT_TRUE(out == same);
          params.block_mass = nullptr;
          attend(batch, 0, q, same, &params);
          EXPECT_TRUE(out == same);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, BlockMass, testing::ValuesIn(pkv::test::instruction_sets),
                         [](const auto& isa) { return "isa" + std::to_string(isa.param); });

TEST(BlockMass, RefusesWhatDoesNotFit) {
  const Model model{1, 2, 1, 16};
  const Cache cache = create(config_of(model, 16));
  const Session session = open(cache);
  Random random(1);
  step(cache, session, model, 40, random);
  const Batch batch = begin(cache, {session}, {1});
  KeysValues rows = rows_of(model, 1);
  write(batch, 0, model, rows);
  Rows q(1, 2, 16), out(1, 2, 16);
  const pkv_tensor queries = q.tensor(), outputs = out.tensor();
  AttentionParams params;
  float mass[2 * 3];
  const auto status = [&] { return pkv_batch_attend(batch, 0, &params, &queries, &outputs); };
  params.weigh(mass, 2);
  REFUSED(PKV_INVALID_ARGUMENT, status());
  params.own_mass.blocks = UINT64_MAX;
  REFUSED(PKV_OVERFLOW, status());
  params.own_mass.blocks = 3;
  CHECK(status());
  params.own_mass.queries = 9;
  CHECK(status());
  EXPECT_NEAR(1, mass[0] + mass[1] + mass[2], 1e-5);
  params.choose(1);
  REFUSED(PKV_INVALID_ARGUMENT, status());
  params.chosen_blocks = nullptr;
  params.own_mass.masses = nullptr;
  REFUSED(PKV_INVALID_ARGUMENT, status());
}

// Only paged storage has blocks.
TEST(BlockMass, AndChosenBlocksNeedPagedStorage) {
  const Model model{1, 2, 1, 16};
  const Cache cache = create(config_of(model, 16, PKV_STORAGE_CONTIGUOUS));
  const Session session = open(cache);
  const Batch batch = begin(cache, {session}, {1});
  KeysValues rows = rows_of(model, 1);
  write(batch, 0, model, rows);
  Rows q(1, 2, 16), out(1, 2, 16);
  const pkv_tensor queries = q.tensor(), outputs = out.tensor();
  AttentionParams mass, choice;
  float masses[2];
  mass.weigh(masses, 1);
  const uint32_t list[] = {0};
  choice.choose(list, 1);
  for (const pkv_attention_params* params : {&mass, &choice}) {
    REFUSED(PKV_UNSUPPORTED, pkv_batch_attend(batch, 0, params, &queries, &outputs));
    EXPECT_NE(nullptr, std::strstr(pkv_last_error(), "storage PAGED")) << pkv_last_error();
  }
  attend(batch, 0, q, out);
}

// Blocks of the plain layout are of any size. Keys of zeros give every position the same weight.
TEST(BlockMass, OfBlocksOfAnySize) {
  const Model model{1, 1, 1, 16};
  for (const pkv_isa isa : supported_isas()) {
    const Compute compute = make_compute(1, isa);
    for (const uint32_t size : {1u, 3u, 4u, 8u, 24u}) {
      SCOPED_TRACE(testing::Message() << pkv_isa_name(isa) << ", blocks of " << size);
      HostMemory memory(model, PKV_LAYOUT_PLAIN, size, 25);
      std::fill(memory.bytes.begin(), memory.bytes.end(), static_cast<unsigned char>(0));
      Random random(5);
      const HostSequences sequences(memory, 1, {1}, {24}, random);
      const pkv_kv_sequences given = sequences.get();
      Rows q(1, 1, 16), out(1, 1, 16);
      const pkv_tensor queries = q.fill(random).tensor(), outputs = out.tensor();
      AttentionParams params;
      std::vector<float> mass(24 / size);
      params.weigh(mass.data(), mass.size());
      CHECK(pkv_kv_attend(compute, &memory.view, &given, &params, &queries, &outputs));
      for (const float one : mass) EXPECT_NEAR(static_cast<float>(size) / 24, one, 1e-6);
    }
  }
}

// Blocks before a window need not exist, even where one tile has the tokens of several blocks.
TEST(BlockMass, ReadsNoBlocksBeforeAWindow) {
  const Model model{1, 1, 1, 16};
  HostMemory memory(model, PKV_LAYOUT_PLAIN, 4, 4);
  std::fill(memory.bytes.begin(), memory.bytes.end(), static_cast<unsigned char>(0));
  Random random(6);
  HostSequences sequences(memory, 1, {1}, {16}, random);
  sequences.tables[0] = sequences.tables[1] = UINT32_MAX;
  const pkv_kv_sequences given = sequences.get();
  Rows q(1, 1, 16), out(1, 1, 16);
  const pkv_tensor queries = q.fill(random).tensor(), outputs = out.tensor();
  AttentionParams params;
  float mass[4];
  params.window = 8;
  params.weigh(mass, 4);
  CHECK(pkv_kv_attend(nullptr, &memory.view, &given, &params, &queries, &outputs));
  EXPECT_EQ((std::vector<float>{0, 0, 0.5f, 0.5f}), std::vector<float>(mass, mass + 4));
}

// Over the caller's memory, with given positions.
TEST(BlockMass, NeedsNoCache) {
  const Model model{1, 2, 1, 16};
  const Compute compute = make_compute(1);
  HostMemory memory(model, PKV_LAYOUT_PACKED, block_size, 8);
  Random random(3);
  const HostSequences sequences(memory, 2, {2, 1}, {40, 50}, random);
  const pkv_kv_sequences given = sequences.get();
  {
    HostSequences all = sequences;
    all.rows = {40, 50};
    const pkv_kv_sequences whole = all.get();
    KeysValues rows = random_rows(model, 90, random);
    const pkv_tensor k = rows.k.tensor(), v = rows.v.tensor();
    CHECK(pkv_kv_write(compute, &memory.view, &whole, &k, &v));
  }
  Rows q(3, 2, 16), out(3, 2, 16);
  const pkv_tensor queries = q.fill(random).tensor(), outputs = out.tensor();
  AttentionParams params;
  std::vector<float> mass(2 * 2 * 4, -1.0f);
  params.weigh(mass.data(), 4);
  CHECK(pkv_kv_attend(compute, &memory.view, &given, &params, &queries, &outputs));
  for (size_t head = 0; head < 4; head++) {
    double sum = 0;
    for (size_t i = 0; i < (head < 2 ? 3 : 4); i++) sum += double{mass[head * 4 + i]};
    EXPECT_NEAR(head < 2 ? 2 : 1, sum, 1e-4);
    EXPECT_EQ(head < 2 ? -1 : mass[head * 4 + 3], mass[head * 4 + 3]);
  }
}

}  // namespace
}  // namespace cache_test::block_mass_test
