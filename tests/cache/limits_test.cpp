// As much of everything that is counted as a large server has, on a thread with a small stack: no
// call may use more of the stack for more of it, or take time like its square.
#include "../support/cache.h"
#include "../support/hints.h"
#include "../support/small_stack.h"

namespace cache_test::limits_test {
namespace {

using pkv::test::on_small_stack;
using Text = std::vector<int32_t>;

constexpr uint32_t many = pkv::test::sanitized ? 10'000 : 100'000;
const Model model{1, 1, 1, 16};

// A cache with a prefix index, and without bytes.
Cache make(uint64_t blocks, bool groups_share_memory = false) {
  auto prefix = made<pkv_prefix_config>();
  ModelConfig config = config_of(model, blocks, PKV_STORAGE_NONE);
  config.threads = 1;
  config.prefix = &prefix;
  if (groups_share_memory) share_memory(config);
  return create(config);
}

// Computes a text in a session of its own.
void serve(pkv_cache cache, const Text& text) {
  Session session = open(cache);
  Batch batch = begin(cache, {session}, {static_cast<uint32_t>(text.size())});
  commit(batch, text);
}

pkv_prefix_stats figures(pkv_cache cache) {
  auto stats = made<pkv_prefix_stats>();
  CHECK(pkv_prefix_get_stats(cache, nullptr, PKV_ALL_SALTS, &stats));
  return stats;
}

// Texts of one block each.
Text text_of(uint32_t i) { return Text(16, static_cast<int32_t>(i)); }

TEST(Limits, PinsThatYieldToAStep) {
  on_small_stack([] {
    Cache cache = make(4 * many);
    for (uint32_t i = 0; i < many; i++) {
      serve(cache, text_of(i));
      ASSERT_EQ(PKV_HINT_ACCEPTED, hint(cache, PKV_HINT_PIN, text_of(i)).outcome) << i;
    }
    Session session = open(cache);
    pkv_session step = session;
    const uint32_t tokens = (4 * many - 10) * 16;
    size_t victims = 99;
    CHECK(pkv_batch_choose_victims(cache, 1, &step, &tokens, 0, nullptr, &victims));
    EXPECT_EQ(0u, victims);
    EXPECT_EQ(many - 10, figures(cache).yielded_pins) << "no more than the step needs";
    EXPECT_EQ(10u, figures(cache).pinned_blocks);
  });
}

}  // namespace
}  // namespace cache_test::limits_test
