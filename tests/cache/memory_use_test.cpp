// The memory that a cache takes, by its plan, and the number of slots that 64 sessions take: as
// many as they need, or as many as the longest text needs.
#include "../support/cache.h"

namespace cache_test::memory_use_test {
namespace {

TEST(MemoryPlan, ATokenOf8HeadsOf128In36LayersTakes144KiB) {
  for (const pkv_dtype dtype : {PKV_F16, PKV_BF16}) {
    const pkv_cache_sizes plan = sizes_of(config_of({36, 32, 8, 128, 0, dtype}, 100));
    EXPECT_EQ(144u * 1024, plan.bytes_per_token);
    EXPECT_EQ(16u * 144 * 1024, plan.bytes_per_block);
    EXPECT_EQ(1600u, plan.tokens);
    EXPECT_EQ(1600u * 144 * 1024, plan.memory_bytes);
  }
}

TEST(MemoryPlan, OfBlocksAndOfABudgetAgree) {
  const ModelConfig config = config_of({28, 8, 8, 128, 0, PKV_F16}, 512);
  const pkv_cache_sizes plan = sizes_of(config);
  // 512 blocks of 16 tokens with 8 heads of 128 dims, K and V, 2 bytes, 28 layers are 896 MiB.
  EXPECT_EQ(939'524'096u, plan.memory_bytes);
  EXPECT_EQ(512u * 16, plan.tokens);
  ModelConfig budget = config;
  budget.model.blocks = 0;
  budget.memory_bytes = 939'524'096;
  EXPECT_EQ(512u, sizes_of(budget).blocks);
  budget.memory_bytes--;
  EXPECT_EQ(511u, sizes_of(budget).blocks);
  Cache cache = create(config);
  EXPECT_EQ(939'524'096u, stats_of(cache).mapped_bytes);
}

// The lengths of 64 sessions: 20,174 tokens, which fill 20,640 slots of blocks of 16.
constexpr uint32_t lengths[] = {513, 389, 316, 176, 198, 43,  63,  29,  121, 491, 396, 549, 312,
                                371, 583, 443, 386, 335, 344, 562, 180, 493, 409, 21,  248, 517,
                                341, 39,  463, 443, 511, 121, 71,  520, 32,  334, 66,  193, 299,
                                265, 253, 36,  23,  92,  24,  408, 324, 395, 169, 376, 463, 242,
                                287, 598, 486, 588, 240, 417, 571, 397, 507, 419, 428, 245};
constexpr uint64_t tokens = 20174, paged_slots = 20640, max_length = 2048,
                   longest_slots = 64 * max_length;

const Model small{1, 1, 1, 16};

class ReservedSlots : public testing::Test {
 protected:
  // Opens a session for each length, with room for `reserve` tokens, and writes its tokens.
  void serve(pkv_cache cache, uint64_t reserve) {
    sessions.clear();
    for (const uint32_t length : lengths) {
      sessions.push_back(open(cache, reserve));
      Batch batch = begin(cache, {sessions.back()}, {length});
      std::vector<float> zeros(length * 16);
      const pkv_tensor rows{zeros.data(), PKV_F32, 0, 0, 0, 0, 4 * zeros.size()};
      // Storage NONE takes no rows.
      const pkv_status status = pkv_batch_write(batch, 0, &rows, &rows);
      if (status != PKV_UNSUPPORTED) CHECK(status);
      commit(batch);
    }
  }

  static uint64_t used_slots(pkv_cache cache) { return 16 * pool_stats_of(cache).held_blocks; }
  static double percent_used(pkv_cache cache) {
    return 100.0 * static_cast<double>(stats_of(cache).filled_slots) /
           static_cast<double>(used_slots(cache));
  }

  std::vector<Session> sessions;
};

TEST_F(ReservedSlots, PagedReserves20640SlotsFor20174Tokens) {
  for (const pkv_storage storage : {PKV_STORAGE_EXTERNAL, PKV_STORAGE_INTERNAL}) {
    Cache cache = create(config_of(small, 1500, storage));
    serve(cache, 0);
    const pkv_cache_stats stats = stats_of(cache);
    EXPECT_EQ(tokens, stats.tokens);
    EXPECT_EQ(tokens, stats.filled_slots);
    EXPECT_EQ(paged_slots, used_slots(cache));
    EXPECT_NEAR(97.7, percent_used(cache), 0.05);
    CHECK(pkv_cache_validate(cache));
    sessions.clear();
    EXPECT_EQ(0u, used_slots(cache));
  }
}

TEST_F(ReservedSlots, TheLongestTextForEachIs131072SlotsWhichIs6Point4TimesAsMuch) {
  Cache cache = create(config_of(small, longest_slots / 16));
  serve(cache, max_length);
  const pkv_cache_stats stats = stats_of(cache);
  EXPECT_EQ(tokens, stats.filled_slots);
  EXPECT_EQ(131072u, longest_slots);
  const uint64_t reserved = used_slots(cache);
  EXPECT_EQ(longest_slots, reserved);
  EXPECT_NEAR(15.4, percent_used(cache), 0.05);

  Cache paged = create(config_of(small, 1500));
  sessions.clear();
  serve(paged, 0);
  EXPECT_NEAR(6.4, static_cast<double>(reserved) / static_cast<double>(used_slots(paged)), 0.05);
  sessions.clear();
}

}  // namespace
}  // namespace cache_test::memory_use_test
