// The arithmetic of a chapter on KV serving, with its 64 lengths: what paging reserves, and what a
// contiguous cache does.
#include "data.h"
#include "json_numbers.h"
#include "support.h"

namespace systems {
namespace {

class ServingChapter : public testing::Test {
 protected:
  void SetUp() override {
    const auto path = outside_data("kv_serving_workload.json");
    if (!std::filesystem::exists(path))
      GTEST_SKIP() << "no " << path << ": nothing was shown about the chapter's figures";
    text = read_text(path);
    for (const double length : json_numbers(text, "lengths"))
      lengths.push_back(static_cast<uint32_t>(length));
    ASSERT_EQ(64u, lengths.size());
    ASSERT_EQ(16, json_number(text, "block_size"));
  }

  // A session per length, each with room for `reserve` tokens, holding its tokens.
  void serve(pkv_cache cache, uint64_t reserve) {
    sessions.clear();
    for (const uint32_t length : lengths) {
      sessions.push_back(open(cache, reserve));
      // Storage NONE and an empty step need no rows; the others get zeros.
      Batch batch = begin(cache, {sessions.back()}, {length});
      std::vector<float> zeros(length * 16);
      const pkv_tensor rows{zeros.data(), PKV_F32, 0, 0, 0};
      const pkv_status status = pkv_batch_write(batch, 0, &rows, &rows);
      if (status != PKV_UNSUPPORTED) CHECK(status);
      commit(batch);
    }
  }

  double percent_used(const pkv_cache_stats& stats) const {
    return 100.0 * static_cast<double>(stats.slots_filled) /
           static_cast<double>(stats.slots_reserved);
  }

  std::string text;
  std::vector<uint32_t> lengths;
  std::vector<Session> sessions;
};

const Model small{1, 1, 1, 16};

TEST_F(ServingChapter, PagedReserves20640SlotsFor20174Tokens) {
  ASSERT_EQ(20174, json_number(text, "used_tokens"));
  ASSERT_EQ(20640, json_number(text, "paged_reserved"));
  for (const pkv_storage storage : {PKV_STORAGE_NONE, PKV_STORAGE_PAGED}) {
    Cache cache = create(config_of(small, 1500, storage));
    serve(cache, 0);
    const pkv_cache_stats stats = stats_of(cache);
    EXPECT_EQ(20174u, stats.tokens);
    EXPECT_EQ(20174u, stats.slots_filled);
    EXPECT_EQ(20640u, stats.slots_reserved);
    EXPECT_NEAR(json_number(text, "paged_utilization_pct"), percent_used(stats), 0.05);
    CHECK(pkv_cache_validate(cache));
    sessions.clear();
    EXPECT_EQ(0u, stats_of(cache).slots_reserved);
  }
}

TEST_F(ServingChapter, ContiguousReserves131072SlotsWhichIs6Point4TimesAsMuch) {
  const uint64_t max_seq_len = static_cast<uint64_t>(json_number(text, "max_seq_len"));
  const pkv_cache_config config = config_of(small, 64 * max_seq_len / 16, PKV_STORAGE_CONTIGUOUS);
  Cache cache = create(config);
  serve(cache, max_seq_len);
  const pkv_cache_stats stats = stats_of(cache);
  EXPECT_EQ(20174u, stats.slots_filled);
  EXPECT_EQ(131072u, stats.slots_reserved);
  EXPECT_EQ(json_number(text, "contiguous_reserved"), static_cast<double>(stats.slots_reserved));
  EXPECT_EQ(131072u * plan_of(config).bytes_per_token, stats.bytes_reserved)
      << "the bytes are really there";
  EXPECT_NEAR(json_number(text, "contiguous_utilization_pct"), percent_used(stats), 0.05);

  Cache paged = create(config_of(small, 1500));
  sessions.clear();
  serve(paged, 0);
  const double ratio = static_cast<double>(stats.slots_reserved) /
                       static_cast<double>(stats_of(paged).slots_reserved);
  EXPECT_NEAR(json_number(text, "reservation_ratio"), ratio, 0.05);
  sessions.clear();
}

}  // namespace
}  // namespace systems
