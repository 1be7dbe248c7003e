// Paged and contiguous storage hold the same rows, restore the same snapshots and give the same
// outputs, in each 16- and 32-bit type.
#include "../support/cache.h"
#include "../support/rows.h"

namespace cache_test::paged_and_contiguous_test {
namespace {

class PagedAndContiguous : public testing::TestWithParam<pkv_dtype> {
 protected:
  const Model model{2, 4, 2, 32, 48, GetParam()};
};

TEST_P(PagedAndContiguous, PrefillOf100TokensFillsSixBlocksAndAPart) {
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

TEST_P(PagedAndContiguous, MaterializeGivesTheSameBits) {
  Cache paged = create(config_of(model, 16)),
        contiguous = create(config_of(model, 16, PKV_STORAGE_CONTIGUOUS));
  ModelConfig plain_config = config_of(model, 16);
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

TEST_P(PagedAndContiguous, ASnapshotComesBackAsItWas) {
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

// A fork has no rows that left the window of its parent: they are not copied from a session that
// was loaded without them, so a trim back to them would see whatever the memory had.
TEST_P(PagedAndContiguous, AForkHasNoMoreThanItsParent) {
  for (const pkv_storage storage : {PKV_STORAGE_PAGED, PKV_STORAGE_CONTIGUOUS}) {
    Model windowed = model;
    windowed.window = 20;
    Cache cache = create(config_of(windowed, 32, storage));
    Session session = open(cache);
    Random random(5);
    for (int i = 0; i < 4; i++) step(cache, session, windowed, 25, random);
    const Session child = fork(session);
    Rows k(1, model.kv_heads, model.key_dim);
    const pkv_tensor keys = k.tensor();
    for (const pkv_session each : {session.get(), child.get()}) {
      REFUSED(PKV_OUT_OF_RANGE, pkv_session_read(each, 0, 0, 1, &keys, nullptr));
      REFUSED(PKV_OUT_OF_RANGE, pkv_session_trim(each, 30));
      EXPECT_EQ(info_of(session).blocks, info_of(each).blocks);
    }
    CHECK(pkv_cache_validate(cache));
  }
}

TEST_P(PagedAndContiguous, AttentionGivesTheSameOutputs) {
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

INSTANTIATE_TEST_SUITE_P(Dtypes, PagedAndContiguous, testing::Values(PKV_F32, PKV_F16, PKV_BF16),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace cache_test::paged_and_contiguous_test
