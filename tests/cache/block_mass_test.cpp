// The attention mass of blocks, beside what attention_test.cpp compares with the sums of the
// weights of textbook attention.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "host.h"

namespace cache_test::block_mass_test {
namespace {

constexpr uint32_t block_size = 16;

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
  const pkv_tensor queries = q.tensor(), results = out.tensor();
  AttentionParams params;
  float mass[2 * 3];
  const auto status = [&] {
    return pkv_batch_attend(batch, 0, &params, &queries, &results, &params.outputs);
  };
  params.weigh(mass, 2);
  REFUSED(PKV_INVALID_ARGUMENT, status());
  params.block_outputs.mass_blocks = UINT64_MAX;
  REFUSED(PKV_OVERFLOW, status());
  params.block_outputs.mass_blocks = 3;
  CHECK(status());
  params.block_outputs.mass_queries = 9;
  CHECK(status());
  EXPECT_NEAR(1, mass[0] + mass[1] + mass[2], 1e-5);
  params.choose(1);
  REFUSED(PKV_INVALID_ARGUMENT, status());
  params.chosen_blocks = nullptr;
  params.block_outputs.masses = nullptr;
  REFUSED(PKV_INVALID_ARGUMENT, status());
  params.block_outputs.mass_blocks = 0;
  REFUSED(PKV_INVALID_ARGUMENT, status());
  params.block_outputs.mass_queries = 0;
  CHECK(status());
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
      const pkv_tensor queries = q.fill(random).tensor(), results = out.tensor();
      AttentionParams params;
      std::vector<float> mass(24 / size);
      params.weigh(mass.data(), mass.size());
      CHECK(pkv_kv_attend(compute, &memory.view, &given, &params, &queries, &results,
                          &params.outputs));
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
  const pkv_tensor queries = q.fill(random).tensor(), results = out.tensor();
  AttentionParams params;
  float mass[4];
  params.window = 8;
  params.weigh(mass, 4);
  CHECK(pkv_kv_attend(nullptr, &memory.view, &given, &params, &queries, &results, &params.outputs));
  EXPECT_EQ((std::vector<float>{0, 0, 0.5f, 0.5f}), std::vector<float>(mass, mass + 4));
}

// Over the caller's memory, with positions of its own.
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
  const pkv_tensor queries = q.fill(random).tensor(), results = out.tensor();
  AttentionParams params;
  std::vector<float> mass(2 * 2 * 4, -1.0f);
  params.weigh(mass.data(), 4);
  CHECK(pkv_kv_attend(compute, &memory.view, &given, &params, &queries, &results, &params.outputs));
  for (size_t head = 0; head < 4; head++) {
    double sum = 0;
    for (size_t i = 0; i < (head < 2 ? 3 : 4); i++) sum += double{mass[head * 4 + i]};
    EXPECT_NEAR(head < 2 ? 2 : 1, sum, 1e-4);
    EXPECT_EQ(head < 2 ? -1 : mass[head * 4 + 3], mass[head * 4 + 3]);
  }
}

}  // namespace
}  // namespace cache_test::block_mass_test
