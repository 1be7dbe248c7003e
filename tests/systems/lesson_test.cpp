// A lesson's cache: pool, allocator, request and the metadata of a forward pass.
#include <set>

#include "rows.h"
#include "support.h"

namespace systems {
namespace {

constexpr uint32_t block_size = 16;
const Model model{2, 4, 2, 32};

TEST(Lesson, ReservingGrowsOnDemandAndNeverShrinks) {
  Cache cache = create(config_of(model, 16));
  Session session = open(cache);
  const uint64_t wanted[] = {1, 16, 17, 10, 73, 80, 81};
  const size_t held[] = {1, 1, 2, 2, 5, 5, 6};
  for (size_t i = 0; i < std::size(wanted); i++) {
    const std::vector<uint32_t> before = block_table(session);
    CHECK(pkv_session_reserve(session, wanted[i]));
    const std::vector<uint32_t> table = block_table(session);
    EXPECT_EQ(held[i], table.size()) << wanted[i] << " tokens";
    EXPECT_TRUE(std::equal(before.begin(), before.end(), table.begin()))
        << "what was held stays where it is";
  }
  EXPECT_EQ(0u, length_of(session));
  REFUSED(PKV_TOO_LARGE, pkv_session_reserve(session, 17 * 16));
  Session other = open(cache, 10 * 16);
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_session_reserve(session, 6 * 16 + 1));
  EXPECT_EQ(6u, block_table(session).size());
  CHECK(pkv_cache_validate(cache));
}

TEST(Lesson, SeventyThreeTokensHoldFiveBlocks) {
  Cache cache = create(config_of(model, 16));
  Session session = open(cache);
  Random random(1);
  step(cache, session, model, 73, random);
  EXPECT_EQ(5u, block_table(session).size());
  EXPECT_EQ(5u, stats_of(cache).used_blocks);
  EXPECT_EQ(73u, stats_of(cache).slots_filled);
  EXPECT_EQ(80u, stats_of(cache).slots_reserved);
}

TEST(Lesson, ASlotIsBlockTimesSizePlusOffset) {
  Cache cache = create(config_of(model, 16));
  Session other = open(cache, 1), session = open(cache, 1);
  CHECK(pkv_session_reserve(other, 20));
  Batch batch = begin(cache, {session}, {73});
  const std::vector<int64_t> slots = slot_mapping(batch);
  const std::vector<uint32_t> table = block_table(session);
  ASSERT_EQ(73u, slots.size());
  for (size_t i = 0; i < slots.size(); i++)
    EXPECT_EQ(int64_t{table[i / block_size]} * block_size + static_cast<int64_t>(i % block_size),
              slots[i]);
}

TEST(Lesson, APrefillReadsJustWhatItWrites) {
  Cache cache = create(config_of(model, 16));
  Session first = open(cache), second = open(cache);
  Batch batch = begin(cache, {first, second}, {73, 20});
  const std::vector<int64_t> written = slot_mapping(batch);

  int64_t indptr[3];
  std::vector<int64_t> read(93);
  size_t count = 0;
  uint32_t last_block_length[2];
  CHECK(pkv_batch_kv_indices(batch, 0, PKV_INDEX_SLOTS, indptr, read.size(), read.data(), &count,
                             last_block_length));
  EXPECT_EQ(93u, count);
  EXPECT_EQ(written, read);
  EXPECT_EQ((std::vector<int64_t>{0, 73, 93}), std::vector<int64_t>(indptr, indptr + 3));
  EXPECT_EQ(9u, last_block_length[0]);
  EXPECT_EQ(4u, last_block_length[1]);
  EXPECT_EQ(93u, std::set<int64_t>(read.begin(), read.end()).size()) << "no slot serves two tokens";

  std::vector<int64_t> of_sessions = kv_indices(first);
  const std::vector<int64_t> of_second = kv_indices(second);
  of_sessions.insert(of_sessions.end(), of_second.begin(), of_second.end());
  EXPECT_EQ(written, of_sessions);

  std::vector<int64_t> blocks(7);
  CHECK(pkv_batch_kv_indices(batch, 0, PKV_INDEX_BLOCKS, indptr, blocks.size(), blocks.data(),
                             &count, nullptr));
  const std::vector<uint32_t> table = block_table(first), second_table = block_table(second);
  std::vector<int64_t> expected(table.begin(), table.end());
  expected.insert(expected.end(), second_table.begin(), second_table.end());
  EXPECT_EQ(expected, blocks);
}

TEST(Lesson, ADecodeStepWritesOneSlotAndReadsAll) {
  Cache cache = create(config_of(model, 16));
  Session session = open(cache);
  Random random(2);
  step(cache, session, model, 16, random);
  Batch batch = begin(cache, {session}, {1});
  const std::vector<int64_t> written = slot_mapping(batch), read = kv_indices(session);
  EXPECT_EQ(1u, written.size());
  EXPECT_EQ(17u, read.size());
  EXPECT_EQ(written[0], read.back());
}

// The slip the lesson warns of: advancing in each layer, or before the first token is sampled,
// leaves the length at T + 1.
TEST(Lesson, TheLengthAfterAPrefillOfTTokensIsT) {
  for (const pkv_storage storage : {PKV_STORAGE_PAGED, PKV_STORAGE_CONTIGUOUS}) {
    Cache cache = create(config_of(model, 16, storage));
    Session session = open(cache);
    Random random(3);
    for (uint32_t layer = 0; layer < model.layers; layer++) {
      EXPECT_EQ(0u, length_of(session));
      Rows k(73, model.kv_heads, model.key_dim), v(k);
      const pkv_tensor keys = k.fill(random).tensor(), values = v.fill(random).tensor();
      CHECK(pkv_session_prefill(session, layer, 73, &keys, &values));
      uint64_t length = 0;
      CHECK(pkv_session_layer_length(session, layer, &length));
      EXPECT_EQ(73u, length);
    }
    EXPECT_EQ(73u, length_of(session));
    Rows k(1, model.kv_heads, model.key_dim), v(k);
    const pkv_tensor keys = k.fill(random).tensor(), values = v.fill(random).tensor();
    for (uint32_t layer = 0; layer < model.layers; layer++)
      CHECK(pkv_session_push(session, layer, &keys, &values));
    EXPECT_EQ(74u, length_of(session));
  }
}

TEST(Lesson, ATokenOf8HeadsOf128In36LayersTakes144KiB) {
  for (const pkv_dtype dtype : {PKV_F16, PKV_BF16}) {
    const pkv_cache_plan plan = plan_of(config_of({36, 32, 8, 128, 0, dtype}, 100));
    EXPECT_EQ(144u * 1024, plan.bytes_per_token);
    EXPECT_EQ(16u * 144 * 1024, plan.bytes_per_block);
    EXPECT_EQ(1600u, plan.tokens);
    EXPECT_EQ(1600u * 144 * 1024, plan.total_bytes);
  }
}

}  // namespace
}  // namespace systems
