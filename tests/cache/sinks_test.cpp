// Windows with sinks: which blocks stay, and that all functions that list them agree.
#include <algorithm>
#include <iterator>

#include "grown.h"

namespace cache_test::sinks_test {
namespace {

constexpr uint32_t block_size = 16, window = 40, sinks = 20;
const Model model{1, 4, 2, 32, 0, PKV_F32, window, PKV_F32, sinks};

// Attention reads the sinks and nothing else of their blocks, then all that the window still holds.
std::vector<int64_t> slots_read(pkv_session session, uint64_t length) {
  const std::vector<int64_t> slots = slots_of(session, length);
  std::vector<int64_t> read(slots.begin(), slots.begin() + std::min<int64_t>(sinks, slots.size()));
  if (slots.size() > 32)
    std::copy_if(slots.begin() + 32, slots.end(), std::back_inserter(read),
                 [](int64_t slot) { return slot >= 0; });
  return read;
}

class Sinks : public testing::TestWithParam<pkv_layout> {
 protected:
  static Cache make(uint64_t blocks) {
    ModelConfig config = config_of(model, blocks);
    config.layout = GetParam();
    return create(config);
  }
};

TEST_P(Sinks, BlocksBetweenSinksAndWindowAreGivenBack) {
  Cache cache = make(20);
  Grown grown(cache, model, 1);
  EXPECT_LE(grown.step(150, attention_of(model)), 1.0);
  for (int i = 0; i < 100; i++) EXPECT_LE(grown.step(1, attention_of(model)), 1.0);
  EXPECT_LE(grown.step(7, attention_of(model)), 1.0);
  const uint64_t length = grown.length();
  // 20 sinks touch 2 blocks. A window of 40 tokens touches 4 at most, and one more until the next
  // step.
  EXPECT_LE(pool_stats_of(cache, 0).held_blocks, 2u + 5u);
  CHECK(pkv_cache_validate(cache));

  // The blocks of the sinks can be read, and all positions from the first block of the window on.
  KeysValues one = rows_of(model, 1);
  const pkv_tensor k = one.k.tensor();
  const auto readable = [&](uint64_t p) {
    return pkv_session_read(grown.session(), 0, p, 1, &k, nullptr) == PKV_OK;
  };
  for (uint64_t p = 0; p < 32; p++) EXPECT_TRUE(readable(p)) << p;
  for (uint64_t p = length - window; p < length; p++) EXPECT_TRUE(readable(p)) << p;
  for (uint64_t p = 32; p < length - window - 3 * block_size; p++) EXPECT_FALSE(readable(p)) << p;
  REFUSED(PKV_OUT_OF_RANGE, pkv_session_read(grown.session(), 0, 10, 100, &k, nullptr));

  const std::vector<uint32_t> table = block_table(grown.session());
  ASSERT_EQ((length + block_size - 1) / block_size, table.size());
  for (uint64_t p = 0; p < length; p++)
    EXPECT_EQ(readable(p), table[p / block_size] != PKV_NO_BLOCK_ID) << p;
  const auto gone = static_cast<uint64_t>(std::count(table.begin(), table.end(), PKV_NO_BLOCK_ID));
  EXPECT_EQ(table.size(), pool_stats_of(cache, 0).held_blocks + gone);
  EXPECT_EQ(slots_read(grown.session(), length), kv_indices(cache, grown.session()));
}

TEST_P(Sinks, ATrimBehindTheSinksIsRefused) {
  Cache cache = make(20);
  Grown grown(cache, model, 4);
  grown.step(150, attention_of(model));
  grown.step(30, attention_of(model));
  const uint64_t length = grown.length();
  uint32_t refused = 0;
  for (uint64_t to = length - 1; to > 32; to--) {
    const pkv_status status = pkv_session_trim(grown.session(), to);
    if (status == PKV_OK) {
      EXPECT_EQ(0u, refused) << "a shorter text is there, a longer one is not";
      EXPECT_LE(grown.step(1, attention_of(model)), 1.0);
    } else {
      REFUSED(PKV_OUT_OF_RANGE, status);
      refused++;
    }
    CHECK(pkv_cache_validate(cache));
  }
  EXPECT_GT(refused, 60u);
  CHECK(pkv_session_trim(grown.session(), 32));  // Only the sinks are left.
  EXPECT_LE(grown.step(1, attention_of(model)), 1.0);
}

TEST_P(Sinks, ABatchTellsTheSlotsThatItReads) {
  Cache cache = make(40);
  Grown first(cache, model, 2), second(cache, model, 3);
  for (const uint32_t tokens : {200u, 1u, 1u}) first.step(tokens, attention_of(model));
  second.step(10, attention_of(model));
  Batch batch = begin(cache, {first.session(), second.session()}, {1, 3});
  std::vector<uint32_t> indptr(3);
  const std::vector<int64_t> slots = kv_indices(batch, indptr);
  std::vector<int64_t> expected = slots_read(first.session(), first.length() + 1);
  EXPECT_EQ(indptr[1], expected.size());
  const std::vector<int64_t> more = slots_read(second.session(), 13);
  expected.insert(expected.end(), more.begin(), more.end());
  EXPECT_EQ(expected, slots);

  std::vector<uint32_t> blocks(50);
  size_t count = 0;
  CHECK(pkv_batch_get_kv_indices(batch, 0, PKV_INDEX_BLOCKS, indptr.data(), blocks.size(),
                                 blocks.data(), &count, nullptr));
  blocks.resize(count);
  std::vector<uint32_t> held;
  for (const pkv_session session : {first.session(), second.session()})
    for (const uint32_t id : block_table(session))
      if (id != PKV_NO_BLOCK_ID) held.push_back(id);
  EXPECT_EQ(held, blocks);
}

TEST_P(Sinks, ForksTrimsAndSnapshotsKeepThem) {
  Cache cache = make(60);
  Grown grown(cache, model, 4);
  for (const uint32_t tokens : {170u, 1u, 20u}) grown.step(tokens, attention_of(model));
  Snapshot snapshot = freeze(grown.session());
  Grown child(cache, model, 5, fork(grown.session())), thawed(cache, model, 6, thaw(snapshot));
  // A trim to before the last step, as in speculative decoding.
  CHECK(pkv_session_trim(thawed.session(), 171));
  for (Grown* each : {&child, &thawed})
    for (const uint32_t tokens : {1u, 30u, 1u})
      EXPECT_LE(each->step(tokens, attention_of(model)), 1.0);
  REFUSED(PKV_OUT_OF_RANGE, pkv_session_trim(grown.session(), 100));
  CHECK(pkv_cache_validate(cache));
}

TEST_P(Sinks, NoCallCanAskForMoreThanTheLayerKeeps) {
  Cache cache = make(20);
  Session session = open(cache);
  Random random(7);
  Batch batch = begin(cache, {session}, {5});
  KeysValues rows = rows_of(model, 5);
  write(batch, 0, rows.k.fill(random), rows.v.fill(random));
  Rows q(5, 4, 32), out(5, 4, 32);
  const pkv_tensor queries = q.fill(random).tensor(), outputs = out.tensor();
  Attention attention = attention_of(model);
  attention.sinks = sinks + 1;
  AttentionParams params = attention.params();
  REFUSED(PKV_OUT_OF_RANGE, pkv_batch_attend(batch, 0, &params, &queries, &outputs, nullptr));
  params.sink_tokens = 3;
  params.window = 2;
  CHECK(pkv_batch_attend(batch, 0, &params, &queries, &outputs, nullptr));
  attention.sinks = 3;
  attention.window = 2;
  EXPECT_LE(worst_error(q, out, 0, 5, rows, 5, attention), 1.0);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Sinks, testing::Values(PKV_LAYOUT_PACKED, PKV_LAYOUT_PLAIN),
                         [](const auto& test) {
                           return test.param == PKV_LAYOUT_PACKED ? "packed" : "plain";
                         });

}  // namespace
}  // namespace cache_test::sinks_test
