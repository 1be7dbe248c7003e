// As much of everything that is counted as a large server has, on a thread with a small stack: no
// call may use more of the stack for more of it, or take time like its square.
#include "../support/cache.h"
#include "../support/hints.h"
#include "../support/small_stack.h"
#include "host.h"

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
    EXPECT_EQ(many, figures(cache).pinned_blocks) << "a step ends them";
    const Batch batch = begin(cache, {session}, {tokens});
    EXPECT_EQ(many - 10, figures(cache).yielded_pins) << "no more than the step needs";
    EXPECT_EQ(10u, figures(cache).pinned_blocks);
  });
}

// Sequence i shares i blocks with each later one. Each block has one token; block 0 holds ones, and
// block 1, the last one of each sequence, threes.
TEST(Limits, LevelsOfSharedBlocks) {
  on_small_stack([] {
    constexpr uint32_t levels = pkv::test::sanitized ? 500 : 2'000;
    HostMemory memory(model, PKV_LAYOUT_PLAIN, 1, 2);
    KeysValues rows = rows_of(model, 2);
    for (uint32_t d = 0; d < 16; d++)
      for (const size_t row : {0, 1}) {
        rows.k.set(row, 0, d, 0);
        rows.v.set(row, 0, d, row == 0 ? 1 : 3);
      }
    const Compute compute = make_compute(1);
    const int64_t slots[] = {0, 1};
    const pkv_tensor k = rows.k.tensor(), v = rows.v.tensor();
    CHECK(pkv_kv_write_slots(compute, &memory.view, 2, slots, &k, &v));
    std::vector<uint64_t> lengths(levels);
    std::iota(lengths.begin(), lengths.end(), uint64_t{1});
    std::vector<uint32_t> tables(size_t{levels} * levels), queries(levels, 1);
    for (size_t i = 0; i < levels; i++) tables[i * levels + i] = 1;
    const pkv_kv_sequences sequences = sequences_of(1, queries, lengths, tables);
    Rows q(levels, 1, 16), out(levels, 1, 16);
    const pkv_tensor query = q.tensor(), output = out.tensor();
    CHECK(pkv_kv_attend(compute, &memory.view, &sequences, nullptr, &query, &output));
    for (uint32_t i = 0; i < levels; i++)
      ASSERT_NEAR(1 + 2.0 / (i + 1), out.get(i, 0, 0), 1e-4) << "sequence " << i;
  });
}

}  // namespace
}  // namespace cache_test::limits_test
