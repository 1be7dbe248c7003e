// Makes random calls on a pool and on the naive model, which must agree after each call. A test
// drives it by seeds and a fuzzer by bytes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "../support/source.h"
#include "engine/memory/pool.h"
#include "model.h"

namespace pkv::memory {

class Replay {
 public:
  explicit Replay(Source source)
      : source_(source),
        blocks_(one_of({1, 2, 7, 63, 64, 65, 100, 130, 200})),
        block_size_(one_of({1, 2, 16, 256})),
        first_generation_(below(3) == 0 ? retired_generation - 1 - below(20) : 0),
        pool_(blocks_, std::pmr::new_delete_resource(), first_generation_, one_of({1, 2, 4})),
        model_(blocks_, first_generation_) {}

  void run(int steps) {
    for (int i = 0; i < steps && !source_.spent() && !testing::Test::HasFailure(); i++) {
      step();
      compare();
    }
    finish();
  }

 private:
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(source_.below(n)); }
  uint32_t one_of(std::vector<uint32_t> values) {
    return values[below(static_cast<uint32_t>(values.size()))];
  }

  // Mostly returns a reference that is held; sometimes an old one or an invalid one.
  Block some_block() {
    if (!held_.empty() && below(8) != 0) return held_[below(static_cast<uint32_t>(held_.size()))];
    if (!seen_.empty() && below(4) != 0) return seen_[below(static_cast<uint32_t>(seen_.size()))];
    return make_block(below(blocks_ + 2), first_generation_ + below(3));
  }

  // Returns distinct references that are held, sometimes with other ones among them.
  std::vector<Block> some_list() {
    std::vector<Block> list = held_;
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    if (below(2) != 0)
      for (uint32_t i = static_cast<uint32_t>(list.size()); i > 1; i--)
        std::swap(list[i - 1], list[below(i)]);
    list.resize(below(2) != 0 ? std::min<size_t>(list.size(), below(5))
                              : below(static_cast<uint32_t>(list.size()) + 1));
    for (uint32_t extra = below(8) == 0 ? 1 + below(2) : 0; extra > 0; extra--)
      list.insert(list.begin() + below(static_cast<uint32_t>(list.size()) + 1), some_block());
    return list;
  }

  void step() {
    switch (below(8)) {
      case 0:
      case 1:
        return alloc(below(4) == 0 ? below(blocks_ + 3) : below(4));
      case 2:
        return retain(some_list());
      case 3:
        return release(some_list());
      case 4:
        return release({some_block()});
      case 5:
      case 6: {
        const Block block = some_block();
        return fill(block, below(block_size_ + 1));
      }
      default: {
        const Block block = some_block();
        return fill(block, below(2) * block_size_);
      }
    }
  }

  void fill(Block block, uint32_t slots) {
    EXPECT_EQ(pool_.set_filled(block, slots), model_.set_filled(block, slots));
  }

  void alloc(uint32_t n) {
    std::vector<Block> out(n);
    const bool expected = n <= model_.stats().free;
    ASSERT_EQ(pool_.try_alloc(n, out.data()), expected);
    if (!expected) return;
    for (Block block : out) ASSERT_TRUE(model_.take(block)) << std::hex << block;
    held_.insert(held_.end(), out.begin(), out.end());
    seen_.insert(seen_.end(), out.begin(), out.end());
  }

  void retain(const std::vector<Block>& list) {
    size_t failed_at = list.size(), expected_at = 0;
    const pkv_status expected = model_.retain(list, &expected_at);
    ASSERT_EQ(list.size() == 1 ? pool_.retain(list[0])
                               : pool_.retain(list.size(), list.data(), &failed_at),
              expected);
    if (expected == PKV_OK) {
      held_.insert(held_.end(), list.begin(), list.end());
    } else if (list.size() != 1) {
      EXPECT_EQ(failed_at, expected_at);
    }
  }

  void release(const std::vector<Block>& list) {
    size_t failed_at = list.size(), expected_at = 0;
    const pkv_status expected = model_.release(list, &expected_at);
    ASSERT_EQ(list.size() == 1 ? pool_.release(list[0])
                               : pool_.release(list.size(), list.data(), &failed_at),
              expected);
    if (expected == PKV_OK) {
      for (Block block : list) held_.erase(std::find(held_.begin(), held_.end(), block));
    } else if (expected_at < list.size()) {
      if (list.size() != 1) {
        EXPECT_EQ(failed_at, expected_at);
      }
    } else {
      ASSERT_LT(failed_at, list.size());
      EXPECT_EQ(std::count(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(failed_at) + 1,
                           list[failed_at]),
                2);
    }
  }

  void compare() {
    ASSERT_NO_THROW(pool_.validate());
    for (const auto& [id, state] : model_.states()) {
      ASSERT_EQ(pool_.state(id), state) << "block " << id;
      ASSERT_EQ(pool_.is_current(make_block(id, state.generation)), state.references > 0);
    }
    const PoolStats stats = pool_.stats(), expected = model_.stats();
    EXPECT_EQ(stats.blocks, expected.blocks);
    EXPECT_EQ(stats.free, expected.free);
    EXPECT_EQ(stats.held, expected.held);
    EXPECT_EQ(stats.shared, expected.shared);
    EXPECT_EQ(stats.retired, expected.retired);
    EXPECT_EQ(stats.references, expected.references);
    EXPECT_EQ(stats.references, held_.size());
    EXPECT_EQ(stats.filled_slots, expected.filled_slots);
    EXPECT_EQ(stats.held_peak, expected.held_peak);
    EXPECT_EQ(pool_.free_count(), expected.free);
    EXPECT_EQ(pool_.retired(), expected.retired);
  }

  void finish() {
    EXPECT_EQ(pool_.release_held(held_), PKV_OK);
    EXPECT_EQ(pool_.free_count() + pool_.retired(), blocks_);
    EXPECT_NO_THROW(pool_.validate());
  }

  Source source_;
  const uint32_t blocks_, block_size_, first_generation_;
  Pool pool_;
  PoolModel model_;
  std::vector<Block> held_;  // one entry per reference
  std::vector<Block> seen_;  // All blocks that were ever given out.
};

}  // namespace pkv::memory
