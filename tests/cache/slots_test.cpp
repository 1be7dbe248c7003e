// The slots that a step writes and those that it reads, and the length of a session after it.
#include <cstring>
#include <numeric>
#include <set>

#include "../support/cache.h"
#include "../support/rows.h"

namespace cache_test::slots_test {
namespace {

constexpr uint32_t block_size = 16;

const Model model{2, 4, 2, 32};

TEST(Slots, APrefillReadsJustTheSlotsItWrites) {
  Cache cache = create(config_of(model, 16));
  Session first = open(cache), second = open(cache);
  Batch batch = begin(cache, {first, second}, {73, 20});
  const std::vector<int64_t> written = slot_mapping(batch);

  uint32_t indptr[3];
  std::vector<uint32_t> read(93);
  size_t count = 0;
  uint32_t last_block_length[2];
  CHECK(pkv_batch_get_kv_indices(batch, 0, PKV_INDEX_SLOTS, indptr, read.size(), read.data(),
                                 &count, last_block_length));
  EXPECT_EQ(93u, count);
  EXPECT_EQ(written, std::vector<int64_t>(read.begin(), read.end()));
  EXPECT_EQ((std::vector<uint32_t>{0, 73, 93}), std::vector<uint32_t>(indptr, indptr + 3));
  EXPECT_EQ(9u, last_block_length[0]);
  EXPECT_EQ(4u, last_block_length[1]);
  EXPECT_EQ(93u, std::set<uint32_t>(read.begin(), read.end()).size())
      << "no slot serves two tokens";

  std::vector<uint32_t> blocks(7);
  CHECK(pkv_batch_get_kv_indices(batch, 0, PKV_INDEX_BLOCKS, indptr, blocks.size(), blocks.data(),
                                 &count, nullptr));
  const std::vector<uint32_t> second_table = block_table(second);
  std::vector<uint32_t> expected = block_table(first);
  expected.insert(expected.end(), second_table.begin(), second_table.end());
  EXPECT_EQ(expected, blocks);
}

TEST(Slots, ADecodeStepWritesOneSlotAndReadsAll) {
  Cache cache = create(config_of(model, 16));
  Session session = open(cache);
  Random random(2);
  step(cache, session, model, 16, random);
  Batch batch = begin(cache, {session}, {1});
  std::vector<uint32_t> indptr(2);
  const std::vector<int64_t> written = slot_mapping(batch), read = kv_indices(batch, indptr);
  EXPECT_EQ(1u, written.size());
  EXPECT_EQ(17u, read.size());
  EXPECT_EQ(written[0], read.back());
}

TEST(Slots, CommitMovesTheLengthAndTheNextSlots) {
  Cache cache = create(config_of(model, 8, PKV_STORAGE_EXTERNAL));
  Session session = open(cache, 48);
  const std::vector<uint32_t> table = block_table(session);
  uint64_t length = 0;
  for (const uint32_t n : {7u, 1u, 1u, 20u, 3u, 16u}) {
    Batch batch = begin(cache, {session}, {n});
    const std::vector<int64_t> slots = slot_mapping(batch);
    for (uint32_t i = 0; i < n; i++)
      EXPECT_EQ(int64_t{table[(length + i) / block_size]} * block_size +
                    static_cast<int64_t>((length + i) % block_size),
                slots[i]);
    commit(batch);
    length += n;
    EXPECT_EQ(length, length_of(session));
  }
  EXPECT_EQ(table, block_table(session));
}

// The engine has the rows, and they must stay where they are.
TEST(Slots, WithStorageNoneADraftKeepsItsFirstTokens) {
  Cache cache = create(config_of(model, 8, PKV_STORAGE_EXTERNAL));
  Session session = open(cache);
  std::vector<int64_t> expected;
  for (const uint32_t kept : {15u, 3u, 0u, 1u, 18u}) {
    Batch batch = begin(cache, {session}, {20});
    const std::vector<int64_t> slots = slot_mapping(batch);
    std::vector<uint32_t> first(kept);
    std::iota(first.begin(), first.end(), 0);
    std::vector<uint32_t> behind = first;
    behind.push_back(kept + 1);
    REFUSED(PKV_UNSUPPORTED, pkv_batch_accept(batch, 0, behind.size(), behind.data()));
    EXPECT_NE(nullptr,
              std::strstr(pkv_last_error(), "only the first new tokens can be kept; kept["))
        << pkv_last_error();
    CHECK(pkv_batch_accept(batch, 0, kept, first.data()));
    REFUSED(PKV_INVALID_ARGUMENT, pkv_batch_accept(batch, 0, kept, first.data()));
    commit(batch);
    expected.insert(expected.end(), slots.begin(), slots.begin() + kept);
    ASSERT_EQ(expected.size(), length_of(session));
    CHECK(pkv_cache_validate(cache));
  }
  Batch batch = begin(cache, {session}, {1});
  std::vector<uint32_t> indptr(2);
  expected.push_back(slot_mapping(batch)[0]);
  EXPECT_EQ(expected, kv_indices(batch, indptr));
}

// The length must not grow with each layer, nor before the first token is sampled.
TEST(Slots, TheLengthAfterAPrefillOfTTokensIsT) {
  for (const pkv_layout layout : {PKV_LAYOUT_PACKED, PKV_LAYOUT_PLAIN}) {
    ModelConfig config = config_of(model, 16);
    config.layout = layout;
    Cache cache = create(config);
    Session session = open(cache);
    Random random(3);
    Batch batch = begin(cache, {session}, {73});
    for (uint32_t layer = 0; layer < model.layers; layer++) {
      EXPECT_EQ(0u, length_of(session));
      KeysValues rows = random_rows(model, 73, random);
      write(batch, layer, rows.k, rows.v);
      EXPECT_TRUE(materialize(session, layer, model, 0, 73).k == rows.k);
    }
    commit(batch);
    EXPECT_EQ(73u, length_of(session));
    step(cache, session, model, 1, random);
    EXPECT_EQ(74u, length_of(session));
  }
}

}  // namespace
}  // namespace cache_test::slots_test
