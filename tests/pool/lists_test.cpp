// Calls on lists of blocks do all of it or nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "engine/memory/pool.h"

namespace pkv::memory {
namespace {

constexpr size_t untouched = 4242;

// The parameters are the length of the list and the number of shards of the pool.
class Lists : public testing::TestWithParam<std::tuple<size_t, uint32_t>> {
 protected:
  void SetUp() override {
    blocks_.resize(std::get<0>(GetParam()));
    ASSERT_TRUE(pool_.try_alloc(blocks_.size(), blocks_.data()));
    std::reverse(blocks_.begin(), blocks_.end());
  }

  void expect_references(uint32_t references) {
    for (Block block : blocks_)
      EXPECT_EQ(pool_.state(block_id(block)), (BlockState{0, references, 0}));
    EXPECT_EQ(pool_.free_count(), pool_.blocks() - blocks_.size());
    pool_.validate();
  }

  Pool pool_{300, std::pmr::new_delete_resource(), 0, std::get<1>(GetParam())};
  std::vector<Block> blocks_;
  size_t failed_at_ = untouched;
};

TEST_P(Lists, ReleaseGivesAllBack) {
  EXPECT_EQ(pool_.release(blocks_.size(), blocks_.data(), &failed_at_), PKV_OK);
  EXPECT_EQ(failed_at_, untouched);
  EXPECT_EQ(pool_.free_count(), pool_.blocks());
  pool_.validate();
}

TEST_P(Lists, EmptyListIsOk) {
  EXPECT_EQ(pool_.retain(0, nullptr, &failed_at_), PKV_OK);
  EXPECT_EQ(pool_.release(0, nullptr, &failed_at_), PKV_OK);
  EXPECT_EQ(pool_.release_held({}, &failed_at_), PKV_OK);
  EXPECT_EQ(failed_at_, untouched);
  expect_references(1);
}

TEST_P(Lists, DuplicateIsDoubleFreeAndChangesNothing) {
  for (size_t first : {size_t{0}, blocks_.size() / 2, blocks_.size() - 1}) {
    for (size_t second : {first + 1, blocks_.size()}) {
      std::vector<Block> list = blocks_;
      list.insert(list.begin() + static_cast<std::ptrdiff_t>(second), blocks_[first]);
      EXPECT_EQ(pool_.release(list.size(), list.data(), &failed_at_), PKV_NOT_HELD);
      EXPECT_EQ(failed_at_, second);
      expect_references(1);
    }
  }
}

TEST_P(Lists, DuplicateIsDoubleFreeThoughTwoReferencesAreHeld) {
  EXPECT_EQ(pool_.retain(blocks_.size(), blocks_.data()), PKV_OK);
  std::vector<Block> list = blocks_;
  list.push_back(blocks_[0]);
  EXPECT_EQ(pool_.release(list.size(), list.data()), PKV_NOT_HELD);
  expect_references(2);
}

TEST_P(Lists, ListLongerThanThePool) {
  std::vector<Block> list;
  while (list.size() <= 2 * pool_.blocks()) list.insert(list.end(), blocks_.begin(), blocks_.end());
  EXPECT_EQ(pool_.release(list.size(), list.data(), &failed_at_), PKV_NOT_HELD);
  EXPECT_GE(failed_at_, blocks_.size());
  expect_references(1);
}

TEST_P(Lists, BadBlockAnywhereChangesNothing) {
  for (size_t at : {size_t{0}, blocks_.size() / 2, blocks_.size() - 1}) {
    const Block good = blocks_[at];
    for (auto [bad, on_retain, on_release] :
         {std::tuple{make_block(300, 0), PKV_OUT_OF_RANGE, PKV_OUT_OF_RANGE},
          std::tuple{make_block(299, 0), PKV_NOT_HELD, PKV_NOT_HELD},
          std::tuple{make_block(block_id(good), 1), PKV_NOT_HELD, PKV_NOT_HELD}}) {
      blocks_[at] = bad;
      size_t retain_failed_at = untouched;
      EXPECT_EQ(pool_.retain(blocks_.size(), blocks_.data(), &retain_failed_at), on_retain);
      EXPECT_EQ(pool_.release(blocks_.size(), blocks_.data(), &failed_at_), on_release);
      EXPECT_EQ(retain_failed_at, at);
      EXPECT_EQ(failed_at_, at);
      blocks_[at] = good;
      expect_references(1);
    }
  }
}

TEST_P(Lists, RetainTakesTheSameBlockTwice) {
  std::vector<Block> list = blocks_;
  list.insert(list.end(), blocks_.begin(), blocks_.end());
  EXPECT_EQ(pool_.retain(list.size(), list.data(), &failed_at_), PKV_OK);
  expect_references(3);
  EXPECT_EQ(pool_.release_held(list, &failed_at_), PKV_OK);
  EXPECT_EQ(failed_at_, untouched);
  expect_references(1);
}

TEST_P(Lists, ReleaseHeldPassesOverWhatItCannotRelease) {
  std::vector<Block> list = blocks_;
  list.insert(list.begin(), make_block(300, 0));
  list.push_back(blocks_[0]);
  EXPECT_EQ(pool_.release_held(list, &failed_at_), PKV_OUT_OF_RANGE);
  EXPECT_EQ(failed_at_, 0u);
  EXPECT_EQ(pool_.free_count(), pool_.blocks());
  pool_.validate();
}

INSTANTIATE_TEST_SUITE_P(Lengths, Lists,
                         testing::Combine(testing::Values(1, 2, 63, 64, 65, 200),
                                          testing::Values(1, 4)));

TEST_P(Lists, TablesHaveGaps) {
  std::vector<Block> table = blocks_;
  for (size_t at : {blocks_.size(), blocks_.size() / 2, size_t{0}})
    table.insert(table.begin() + static_cast<std::ptrdiff_t>(at), 3, no_block);
  EXPECT_EQ(pool_.retain_table(table, &failed_at_), PKV_OK);
  EXPECT_EQ(failed_at_, untouched);
  expect_references(2);
  EXPECT_EQ(pool_.release_held(table), PKV_OK);
  expect_references(1);
  EXPECT_EQ(pool_.release_held(table), PKV_OK);
  EXPECT_EQ(pool_.free_count(), pool_.blocks());
  EXPECT_EQ(pool_.release_held(table), PKV_NOT_HELD);
  pool_.validate();
}

TEST(ListAtTheLimit, RetainTakesBackTheOthers) {
  Pool pool(3, std::pmr::new_delete_resource());
  Block blocks[3];
  ASSERT_TRUE(pool.try_alloc(3, blocks));
  for (uint32_t i = 1; i < max_references; i++) ASSERT_EQ(pool.retain(blocks[1]), PKV_OK);
  size_t failed_at = untouched;
  EXPECT_EQ(pool.retain(3, blocks, &failed_at), PKV_LIMIT_REACHED);
  EXPECT_EQ(failed_at, 1u);
  EXPECT_EQ(pool.references(0), 1u);
  EXPECT_EQ(pool.references(1), max_references);
  EXPECT_EQ(pool.references(2), 1u);
  pool.validate();
}

TEST(ListAtTheLimit, TablesReachItAndGoNoFurther) {
  Pool pool(3, std::pmr::new_delete_resource());
  Block blocks[3];
  ASSERT_TRUE(pool.try_alloc(3, blocks));
  const Block table[] = {blocks[0], no_block, blocks[1], blocks[2]};
  // From one below the place where retain_table() stops adding without a compare.
  for (uint32_t i = 1; i < max_references / 2; i++) ASSERT_EQ(pool.retain(blocks[1]), PKV_OK);
  size_t failed_at = untouched;
  for (uint32_t i = 0; i < 4; i++) ASSERT_EQ(pool.retain_table(table, &failed_at), PKV_OK);
  EXPECT_EQ(pool.references(1), max_references / 2 + 4);
  while (pool.references(1) < max_references) ASSERT_EQ(pool.retain(blocks[1]), PKV_OK);
  EXPECT_EQ(pool.retain_table(table, &failed_at), PKV_LIMIT_REACHED);
  EXPECT_EQ(failed_at, 2u);
  EXPECT_EQ(pool.references(0), 5u);
  EXPECT_EQ(pool.references(1), max_references);
  EXPECT_EQ(pool.references(2), 5u);
  EXPECT_EQ(pool.state(1).generation, 0u);
  pool.validate();
}

}  // namespace
}  // namespace pkv::memory
