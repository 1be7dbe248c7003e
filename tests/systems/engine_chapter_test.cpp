// The cache of a chapter on building an inference engine: blocks with a life of their own, a
// sequence that fills them slot by slot, and the same numbers as from a contiguous cache.
#include <array>

#include "rows.h"
#include "support.h"

namespace systems {
namespace {

constexpr uint32_t block_size = 16;

Pool make_pool(uint32_t blocks) {
  pkv_pool_config config;
  CHECK(pkv_pool_config_init(&config, sizeof config));
  config.blocks = blocks;
  config.block_size = block_size;
  pkv_pool pool;
  CHECK(pkv_pool_create(&config, &pool));
  return Pool(pool);
}

pkv_block allocate(pkv_pool pool) {
  pkv_block block;
  CHECK(pkv_pool_alloc(pool, 1, &block));
  return block;
}

pkv_block_state state_of(pkv_pool pool, pkv_block block) {
  pkv_block_state state{};
  state.struct_size = sizeof state;
  CHECK(pkv_pool_block_state(pool, PKV_BLOCK_ID(block), &state));
  return state;
}

// The chapter's append: the next slot of the last block, or a new block where that is full or
// sealed.
struct Appender {
  pkv_pool pool;
  std::vector<pkv_block> table;

  int64_t append() {
    uint32_t offset = 0;
    const pkv_status status =
        table.empty() ? PKV_BLOCK_FULL : pkv_pool_claim(pool, table.back(), 1, &offset);
    if (status == PKV_BLOCK_FULL || status == PKV_BLOCK_SEALED) {
      table.push_back(allocate(pool));
      CHECK(pkv_pool_claim(pool, table.back(), 1, &offset));
    } else {
      CHECK(status);
    }
    return int64_t{PKV_BLOCK_ID(table.back())} * block_size + offset;
  }
};

TEST(EngineChapterPool, ABlockTellsItsLife) {
  Pool pool = make_pool(4);
  EXPECT_EQ(0u, state_of(pool, 0).references);
  const pkv_block block = allocate(pool);
  pkv_block_state state = state_of(pool, block);
  EXPECT_EQ(1u, state.references);
  EXPECT_EQ(0u, state.filled);
  EXPECT_EQ(0u, state.sealed);

  uint32_t offset = 99;
  CHECK(pkv_pool_claim(pool, block, 10, &offset));
  EXPECT_EQ(0u, offset);
  CHECK(pkv_pool_claim(pool, block, 6, &offset));
  EXPECT_EQ(10u, offset);
  EXPECT_EQ(16u, state_of(pool, block).filled);
  REFUSED(PKV_BLOCK_FULL, pkv_pool_claim(pool, block, 1, &offset));
  CHECK(pkv_pool_seal(pool, block));
  EXPECT_EQ(1u, state_of(pool, block).sealed);
  CHECK(pkv_pool_seal(pool, block));

  CHECK(pkv_pool_reset(pool, block));
  state = state_of(pool, block);
  EXPECT_EQ(0u, state.filled);
  EXPECT_EQ(0u, state.sealed);
  EXPECT_EQ(1u, state.references);

  CHECK(pkv_pool_claim(pool, block, 3, &offset));
  CHECK(pkv_pool_release(pool, 1, &block));
  state = state_of(pool, block);
  EXPECT_EQ(0u, state.references);
  EXPECT_EQ(0u, state.filled);
  EXPECT_EQ(1u, state.generation);
  CHECK(pkv_pool_validate(pool));
}

TEST(EngineChapterPool, AllocatesInOrder) {
  Pool pool = make_pool(200);
  for (uint32_t id = 0; id < 200; id++) EXPECT_EQ(id, PKV_BLOCK_ID(allocate(pool)));
}

TEST(EngineChapterPool, AppendTakesABlockOnlyWhenTheLastIsFullOrSealed) {
  Pool pool = make_pool(8);
  Appender sequence{pool, {}};
  for (int64_t i = 0; i < 20; i++) EXPECT_EQ(i, sequence.append());
  EXPECT_EQ(2u, sequence.table.size());
  CHECK(pkv_pool_seal(pool, sequence.table.back()));
  EXPECT_EQ(2 * 16, sequence.append());
  EXPECT_EQ(3u, sequence.table.size());
  CHECK(pkv_pool_validate(pool));
}

TEST(EngineChapterPool, FreeReturnsOnlyWhatNobodyElseHolds) {
  Pool pool = make_pool(3);
  std::array<pkv_block, 3> blocks;
  CHECK(pkv_pool_alloc(pool, 3, blocks.data()));
  CHECK(pkv_pool_retain(pool, 1, &blocks[1]));
  CHECK(pkv_pool_release(pool, 3, blocks.data()));
  pkv_pool_stats stats{};
  stats.struct_size = sizeof stats;
  CHECK(pkv_pool_get_stats(pool, &stats));
  EXPECT_EQ(2u, stats.free);
  EXPECT_EQ(1u, stats.used);
  EXPECT_EQ(1u, state_of(pool, blocks[1]).references);
  CHECK(pkv_pool_release(pool, 1, &blocks[1]));
  CHECK(pkv_pool_get_stats(pool, &stats));
  EXPECT_EQ(3u, stats.free);
  CHECK(pkv_pool_validate(pool));
}

TEST(EngineChapterPool, ErrorsAreTold) {
  Pool pool = make_pool(2);
  const pkv_block first = allocate(pool), second = allocate(pool);
  pkv_block none = 77;
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_pool_alloc(pool, 1, &none));
  EXPECT_EQ(77u, none);
  uint32_t offset = 77;
  REFUSED(PKV_OUT_OF_RANGE, pkv_pool_claim(pool, 2, 1, &offset));
  CHECK(pkv_pool_seal(pool, first));
  REFUSED(PKV_BLOCK_SEALED, pkv_pool_claim(pool, first, 1, &offset));
  CHECK(pkv_pool_retain(pool, 1, &second));
  REFUSED(PKV_BUSY, pkv_pool_claim(pool, second, 1, &offset));
  EXPECT_EQ(77u, offset);
  CHECK(pkv_pool_validate(pool));
}

class EngineChapter : public testing::TestWithParam<pkv_dtype> {
 protected:
  const Model model{2, 4, 2, 32, 48, GetParam()};
};

TEST_P(EngineChapter, PrefillOf100TokensFillsSixBlocksAndAPart) {
  Cache cache = create(config_of(model, 16));
  Session session = open(cache);
  Random random(1);
  step(cache, session, model, 100, random);
  EXPECT_EQ(7u, block_table(session).size());
  const pkv_pool_stats stats = pool_stats_of(cache, 0);
  EXPECT_EQ(7u, stats.used);
  EXPECT_EQ(6u * 16 + 4, stats.slots_filled);
  CHECK(pkv_cache_validate(cache));
}

TEST_P(EngineChapter, MaterializeEqualsTheContiguousCacheBitForBit) {
  Cache paged = create(config_of(model, 16)),
        contiguous = create(config_of(model, 16, PKV_STORAGE_CONTIGUOUS));
  pkv_cache_config plain_config = config_of(model, 16);
  plain_config.layout = PKV_LAYOUT_PLAIN;
  Cache plain = create(plain_config);
  // The rows come as fp32: all three round them to their dtype.
  const Model written{model.layers,  model.query_heads, model.kv_heads,
                      model.key_dim, model.value_dim,   PKV_F32};
  std::vector<Session> sessions;
  for (const pkv_cache cache : {paged.get(), contiguous.get(), plain.get()}) {
    Random random(2);
    sessions.push_back(open(cache));
    step(cache, sessions.back(), written, 100, random);
    for (int i = 0; i < 13; i++) step(cache, sessions.back(), written, 1, random);
  }
  for (uint32_t layer = 0; layer < model.layers; layer++) {
    const KeysValues rows = materialize(sessions[0], layer, model, 0, 113);
    EXPECT_TRUE(rows == materialize(sessions[1], layer, model, 0, 113));
    EXPECT_TRUE(rows == materialize(sessions[2], layer, model, 0, 113));
  }
}

TEST_P(EngineChapter, ASnapshotComesBackAsItWas) {
  for (const pkv_storage storage : {PKV_STORAGE_PAGED, PKV_STORAGE_CONTIGUOUS}) {
    Cache cache = create(config_of(model, 32, storage));
    Session session = open(cache);
    Random random(3);
    const std::vector<KeysValues> first = step(cache, session, model, 37, random);
    Snapshot snapshot = freeze(session);
    step(cache, session, model, 30, random);
    Session restored = thaw(cache, snapshot);
    EXPECT_EQ(37u, length_of(restored));
    for (uint32_t layer = 0; layer < model.layers; layer++)
      EXPECT_TRUE(first[layer] == materialize(restored, layer, model, 0, 37));
    CHECK(pkv_cache_validate(cache));
  }
}

TEST_P(EngineChapter, PagedAndContiguousGiveTheSameOutputs) {
  std::vector<Rows> outputs;
  for (const pkv_storage storage : {PKV_STORAGE_PAGED, PKV_STORAGE_CONTIGUOUS}) {
    Cache cache = create(config_of(model, 16, storage));
    Session session = open(cache);
    Random random(4);
    Rows all(0, model.query_heads, model.values());
    for (const uint32_t tokens : {100u, 1u, 1u, 30u, 1u}) {
      Batch batch = begin(cache, {session}, {tokens});
      for (uint32_t layer = 0; layer < model.layers; layer++) {
        Rows k(tokens, model.kv_heads, model.key_dim), v(tokens, model.kv_heads, model.values());
        Rows q(tokens, model.query_heads, model.key_dim),
            out(tokens, model.query_heads, model.values());
        write(batch, layer, k.fill(random), v.fill(random));
        attend(batch, layer, q.fill(random), out);
        all.append(out);
      }
      commit(batch);
    }
    outputs.push_back(all);
  }
  // Rows rounded to the same dtype, summed in the same order.
  double largest = 0;
  outputs[0].each([&](size_t r, uint32_t h, uint32_t d) {
    largest = std::max(largest,
                       std::abs(double{outputs[0].get(r, h, d)} - double{outputs[1].get(r, h, d)}));
  });
  // Values lie in [-1, 1); the two layouts may sum in another order: a few roundings of fp32.
  EXPECT_LE(largest, 32 * unit_roundoff(PKV_F32));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, EngineChapter, testing::Values(PKV_F32, PKV_F16, PKV_BF16),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace systems
