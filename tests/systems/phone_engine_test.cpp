// A phone engine's first phase: a block allocator, a page table over it, and many sessions in one
// slab.
#include <algorithm>
#include <array>
#include <set>

#include "rows.h"
#include "support.h"

namespace systems {
namespace {

class PhoneAllocator : public testing::Test {
 protected:
  PhoneAllocator() {
    pkv_pool_config config;
    CHECK(pkv_pool_config_init(&config, sizeof config));
    config.blocks = 8;
    pkv_pool handle;
    CHECK(pkv_pool_create(&config, &handle));
    pool = Pool(handle);
  }
  void TearDown() override { CHECK(pkv_pool_validate(pool)); }

  uint64_t free_blocks() const {
    pkv_pool_stats stats{};
    stats.struct_size = sizeof stats;
    CHECK(pkv_pool_get_stats(pool, &stats));
    return stats.free;
  }

  Pool pool;
};

TEST_F(PhoneAllocator, RoundTrip) {
  pkv_block block;
  CHECK(pkv_pool_alloc(pool, 1, &block));
  EXPECT_EQ(7u, free_blocks());
  CHECK(pkv_pool_release(pool, 1, &block));
  EXPECT_EQ(8u, free_blocks());
  pkv_block again;
  CHECK(pkv_pool_alloc(pool, 1, &again));
  EXPECT_EQ(PKV_BLOCK_ID(block), PKV_BLOCK_ID(again));
  EXPECT_NE(block, again) << "the block's next life has another generation";
}

TEST_F(PhoneAllocator, ExhaustionIsAnErrorAndEnds) {
  std::array<pkv_block, 8> blocks;
  for (pkv_block& block : blocks) CHECK(pkv_pool_alloc(pool, 1, &block));
  EXPECT_EQ(8u, std::set<pkv_block>(blocks.begin(), blocks.end()).size());
  pkv_block more;
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_pool_alloc(pool, 1, &more));
  CHECK(pkv_pool_release(pool, 1, &blocks[5]));
  CHECK(pkv_pool_alloc(pool, 1, &more));
  EXPECT_EQ(5u, PKV_BLOCK_ID(more));
}

TEST_F(PhoneAllocator, DoubleFreeIsRefused) {
  std::array<pkv_block, 2> blocks;
  CHECK(pkv_pool_alloc(pool, 2, blocks.data()));
  CHECK(pkv_pool_release(pool, 1, &blocks[0]));
  REFUSED(PKV_DOUBLE_FREE, pkv_pool_release(pool, 1, &blocks[0]));
  const std::array<pkv_block, 2> twice = {blocks[1], blocks[1]};
  REFUSED(PKV_DOUBLE_FREE, pkv_pool_release(pool, 2, twice.data()));
  EXPECT_EQ(7u, free_blocks()) << "a list is all or nothing";
  pkv_block next;
  CHECK(pkv_pool_alloc(pool, 1, &next));
  EXPECT_EQ(PKV_BLOCK_ID(blocks[0]), PKV_BLOCK_ID(next));
  REFUSED(PKV_DOUBLE_FREE, pkv_pool_release(pool, 1, &blocks[0]));
  EXPECT_EQ(6u, free_blocks()) << "the stale name does not free the block's new owner's";
}

TEST_F(PhoneAllocator, AnInvalidIdIsRefused) {
  const pkv_block beyond = 8;
  REFUSED(PKV_OUT_OF_RANGE, pkv_pool_release(pool, 1, &beyond));
  REFUSED(PKV_OUT_OF_RANGE, pkv_pool_retain(pool, 1, &beyond));
}

TEST_F(PhoneAllocator, ManyAtOnceAreAllOrNothing) {
  std::array<pkv_block, 8> blocks;
  CHECK(pkv_pool_alloc(pool, 5, blocks.data()));
  std::array<pkv_block, 4> more = {1, 2, 3, 4};
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_pool_alloc(pool, 4, more.data()));
  EXPECT_EQ((std::array<pkv_block, 4>{1, 2, 3, 4}), more);
  EXPECT_EQ(3u, free_blocks());
  CHECK(pkv_pool_alloc(pool, 3, &blocks[5]));
  REFUSED(PKV_TOO_LARGE, pkv_pool_alloc(pool, 9, more.data()));
  CHECK(pkv_pool_alloc(pool, 0, nullptr));
}

constexpr uint32_t block_size = 16;
const Model model{2, 4, 2, 32};

TEST(PhonePageTable, MapsTokensToBlocksAndOffsets) {
  Cache cache = create(config_of(model, 8, PKV_STORAGE_NONE));
  // Somebody else's blocks in between, so that ids are not just 0, 1, 2.
  Session other = open(cache), session = open(cache);
  for (uint32_t i = 0; i < 40; i++) {
    if (i % block_size == 0) grow(cache, other, block_size);
    grow(cache, session, 1);
  }
  const std::vector<uint32_t> table = block_table(session);
  ASSERT_EQ(3u, table.size());
  std::vector<int64_t> slots(40);
  CHECK(pkv_session_slot_mapping(session, 0, 0, slots.size(), slots.data()));
  for (uint32_t token = 0; token < 40; token++)
    EXPECT_EQ(int64_t{table[token / block_size]} * block_size + token % block_size, slots[token]);
  EXPECT_NE(table[0] + 1, table[1]);
}

TEST(PhonePageTable, AllocatesOnlyAtBoundaries) {
  Cache cache = create(config_of(model, 8, PKV_STORAGE_NONE));
  Session session = open(cache);
  EXPECT_EQ(0u, stats_of(cache).used_blocks);
  for (uint32_t length = 1; length <= 100; length++) {
    grow(cache, session, 1);
    EXPECT_EQ((length + block_size - 1) / block_size, stats_of(cache).used_blocks)
        << length << " tokens";
  }
}

TEST(PhonePageTable, FreesEverything) {
  Cache cache = create(config_of(model, 8, PKV_STORAGE_NONE));
  Session session = open(cache);
  grow(cache, session, 100);
  EXPECT_EQ(1u, stats_of(cache).free_blocks);
  session.close();
  EXPECT_EQ(8u, stats_of(cache).free_blocks);
  CHECK(pkv_cache_validate(cache));
}

TEST(PhonePageTable, SurfacesExhaustion) {
  Cache cache = create(config_of(model, 3, PKV_STORAGE_NONE));
  Session session = open(cache), other = open(cache);
  grow(cache, session, 20);
  const pkv_session list[] = {other, session};
  const uint32_t counts[] = {10, 20};
  uint64_t blocks_short = 0;
  pkv_batch batch = nullptr;
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_batch_begin(cache, 2, list, counts, &blocks_short, &batch));
  EXPECT_EQ(1u, blocks_short);
  EXPECT_EQ(nullptr, batch);
  EXPECT_EQ(20u, length_of(session));
  EXPECT_EQ(2u, block_table(session).size());
  EXPECT_EQ(0u, block_table(other).size());
  const uint32_t beyond = 29;
  REFUSED(PKV_TOO_LARGE, pkv_batch_begin(cache, 1, &list[1], &beyond, nullptr, &batch));
  grow(cache, session, 28);
  CHECK(pkv_cache_validate(cache));
}

TEST(PhoneSlab, InterleavedSessionsSeeOnlyTheirOwnRows) {
  constexpr size_t count = 7;
  Cache cache = create(config_of(model, count * 6));
  std::vector<Session> sessions;
  std::vector<std::vector<KeysValues>> expected(count);
  Random random(5);
  for (size_t s = 0; s < count; s++) {
    sessions.push_back(open(cache));
    expected[s] = step(cache, sessions[s], model, static_cast<uint32_t>(1 + 5 * s), random);
  }
  for (int round = 0; round < 40; round++) {
    const size_t s = random.below(count);
    const std::vector<KeysValues> rows = step(cache, sessions[s], model, 1, random);
    for (uint32_t layer = 0; layer < model.layers; layer++) {
      expected[s][layer].k.append(rows[layer].k);
      expected[s][layer].v.append(rows[layer].v);
    }
  }
  std::set<uint32_t> seen;
  size_t held = 0;
  for (size_t s = 0; s < count; s++) {
    for (uint32_t layer = 0; layer < model.layers; layer++)
      EXPECT_TRUE(expected[s][layer] ==
                  materialize(sessions[s], layer, model, 0, length_of(sessions[s])))
          << "session " << s;
    const std::vector<uint32_t> table = block_table(sessions[s]);
    seen.insert(table.begin(), table.end());
    held += table.size();
  }
  EXPECT_EQ(held, seen.size()) << "no block is in two tables";
  CHECK(pkv_cache_validate(cache));
}

TEST(PhoneSlab, AnOutputDependsOnlyOnItsOwnSession) {
  // The same session alone, and beside another whose rows are NaN.
  std::vector<Rows> outputs;
  for (const bool beside : {false, true}) {
    Cache cache = create(config_of(model, 16));
    Session other = open(cache), session = open(cache);
    Random random(6);
    Rows result(0, model.query_heads, model.key_dim);
    for (int i = 0; i < 40; i++) {
      Batch batch = beside ? begin(cache, {other, session}, {1, 1}) : begin(cache, {session}, {1});
      const size_t rows = beside ? 2 : 1;
      for (uint32_t layer = 0; layer < model.layers; layer++) {
        Rows k(rows, model.kv_heads, model.key_dim), v(k),
            q(rows, model.query_heads, model.key_dim), out(q);
        for (Rows* own : {&k, &v, &q}) {
          own->each([&](size_t r, uint32_t h, uint32_t d) { own->set(r, h, d, NAN); });
          own->copy(rows - 1, Rows(1, own->heads(), own->dim()).fill(random), 0, 1);
        }
        write(batch, layer, k, v);
        attend(batch, layer, q, out);
        result.append(out.slice(rows - 1, 1));
      }
      commit(batch);
    }
    outputs.push_back(result);
  }
  EXPECT_TRUE(outputs[0] == outputs[1]);
}

}  // namespace
}  // namespace systems
