// As much of everything that is counted as a large server has, on a thread with a small stack: no
// call may use more of the stack for more of it, or take time like its square.
#include "../support/cache.h"
#include "../support/hints.h"
#include "../support/memory_store.h"
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
  auto prefix = made<pkv_prefix_config>({.max_events = 2 * many});
  ModelConfig config = config_of(model, blocks, PKV_STORAGE_EXTERNAL);
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

// Texts of one block each.
Text text_of(uint32_t i) { return Text(16, static_cast<int32_t>(i)); }

TEST(Limits, PinsThatYieldToAStep) {
  on_small_stack([] {
    Cache cache = make(4 * many);
    for (uint32_t i = 0; i < many; i++) {
      serve(cache, text_of(i));
      ASSERT_EQ(PKV_HINT_OUTCOME_DONE, hint(cache, PKV_HINT_PIN, text_of(i)).outcome) << i;
    }
    Session session = open(cache);
    pkv_session step = session;
    const uint32_t tokens = (4 * many - 10) * 16;
    size_t victims = 99;
    CHECK(pkv_batch_choose_victims(cache, 1, &step, &tokens, 0, nullptr, &victims));
    EXPECT_EQ(0u, victims);
    EXPECT_EQ(many, prefix_stats_of(cache).pinned_blocks) << "a step ends them";
    const Batch batch = begin(cache, {session}, {tokens});
    EXPECT_EQ(many - 10, prefix_stats_of(cache).yielded_pins) << "no more than the step needs";
    EXPECT_EQ(10u, prefix_stats_of(cache).pinned_blocks);
  });
}

std::vector<pkv_session> handles_of(const std::vector<Session>& sessions) {
  return {sessions.begin(), sessions.end()};
}

// Lists all with salts of their own, in events too, and drops them again.
TEST(Limits, SaltsAndEvents) {
  on_small_stack([] {
    const Cache cache = make(2 * many);
    const Text text = text_of(7);
    std::vector<Session> sessions;
    for (uint32_t i = 0; i < many; i++) {
      const std::string salt = std::to_string(i);
      auto config = made<pkv_session_config>({.salt = salt.data(), .salt_size = salt.size()});
      pkv_session session;
      CHECK(pkv_session_open(cache, &config, &session));
      sessions.emplace_back(session);
      CHECK(pkv_prefix_set_quota(cache, salt.data(), salt.size(), 9 * 16));
    }
    const std::vector<pkv_session> step = handles_of(sessions);
    const std::vector<uint32_t> counts(many, 16);
    Batch batch = begin(cache, step, counts);
    commit(batch, Text(size_t{16} * many, 7));
    EXPECT_EQ(many, prefix_stats_of(cache).cached_blocks);
    std::vector<pkv_prefix_event> events(2 * many);
    uint64_t next = 0, lost = 0;
    size_t read = 0;
    CHECK(pkv_prefix_read_events(cache, &next, events.size(), events.data(), &read, &lost));
    EXPECT_EQ(many, read);
    sessions.clear();
    CHECK(pkv_prefix_clear(cache, nullptr, PKV_ALL_SALTS));
    EXPECT_EQ(0u, prefix_stats_of(cache).cached_blocks);
    CHECK(pkv_cache_validate(cache));
  });
}

// All write to the tail that they share, some of them only once others were suspended.
TEST(Limits, ForksAndSnapshotsOfOneSession) {
  on_small_stack([] {
    const Cache cache = make(many / 2 + 1);
    std::vector<Session> sessions;
    sessions.push_back(open(cache));
    grow(cache, sessions[0], 8);
    std::vector<Snapshot> snapshots;
    for (uint32_t i = 1; i < many; i++) sessions.push_back(fork(sessions[0]));
    for (uint32_t i = 0; i < many; i++) snapshots.push_back(freeze(sessions[i]));
    snapshots.clear();
    std::vector<pkv_session> step = handles_of(sessions), victims(many);
    size_t count = 0;
    CHECK(pkv_batch_choose_victims(cache, many, step.data(), std::vector<uint32_t>(many, 1).data(),
                                   many, victims.data(), &count));
    EXPECT_EQ(many / 2 - 1, count);
    for (size_t i = 0; i < count; i++) CHECK(pkv_session_suspend(victims[i]));
    step.resize(many - count);
    Batch batch = begin(cache, step, std::vector<uint32_t>(step.size(), 1));
    commit(batch);
    EXPECT_EQ(many / 2, stats_of(cache).copied_blocks);
    CHECK(pkv_cache_validate(cache));
  });
}

TEST(Limits, OpenBatches) {
  on_small_stack([] {
    const Cache cache = make(many);
    std::vector<Session> sessions;
    std::vector<Batch> batches;
    for (uint32_t i = 0; i < many; i++) {
      sessions.push_back(open(cache));
      batches.push_back(begin(cache, {sessions.back()}, {1}));
    }
    EXPECT_EQ(many, stats_of(cache).batches);
    pkv_session late = nullptr;
    CHECK(pkv_session_open(cache, nullptr, &late));
    const Session session(late);
    const uint32_t one = 1;
    size_t victims = 0;
    REFUSED(PKV_OUT_OF_BLOCKS,
            pkv_batch_choose_victims(cache, 1, &late, &one, 0, nullptr, &victims));
    batches.clear();
    CHECK(pkv_cache_validate(cache));
  });
}

// Sessions end while the store stands still, and then a step needs all of their blocks but some.
TEST(Limits, ContentsThatWaitForAStore) {
  on_small_stack([] {
    MemoryStore memory;
    memory.hold();
    pkv_store table = memory.table();
    auto store = made<pkv_store_config>({.store = &table});
    store.max_queued_tokens = many * 16;
    auto prefix = made<pkv_prefix_config>();
    ModelConfig config = config_of(model, many + 10);
    config.threads = 1;
    config.prefix = &prefix;
    config.store = &store;
    const Cache cache = create(config);
    Rows rows(16, 1, 16);
    const pkv_tensor zeros = rows.tensor();
    for (uint32_t i = 0; i < many; i++) {
      const Session session = open(cache);
      Batch batch = begin(cache, {session}, {16});
      CHECK(pkv_batch_write(batch, 0, &zeros, &zeros));
      commit(batch, text_of(i));
    }
    EXPECT_EQ(many, store_stats_of(cache).queued_blocks);
    {
      const Session session = open(cache);
      const Batch batch = begin(cache, {session}, {(many - 10) * 16});
    }
    memory.go_on();
    EXPECT_GE(store_stats_of(cache).unwritten_blocks, many - 20);
    CHECK(pkv_cache_validate(cache));
  });
}

// More ranges than a session can have are refused, with the limit as the reason.
TEST(Limits, RangesOfASession) {
  on_small_stack([] {
    const Cache cache = make(100);
    const Session session = open(cache);
    for (uint32_t i = 0; i < many; i++) {
      const auto result =
          hint(session, PKV_HINT_SET_RETENTION,
               {.first = i * 16, .end = (i + 1) * 16, .retention = PKV_RETENTION_HIGH});
      ASSERT_EQ(i < 64 ? PKV_HINT_REASON_NONE : PKV_HINT_REASON_LIMIT, result.reason) << i;
    }
    serve(cache, text_of(1));
    CHECK(pkv_cache_validate(cache));
  });
}

// As many groups as a config may have, of a layer each.
TEST(Limits, Groups) {
  on_small_stack([] {
    constexpr uint32_t most = 65'536, used = pkv::test::sanitized ? most / 10 : most;
    std::vector<pkv_layer_group> groups(most + 1, group_of(model));
    for (pkv_layer_group& group : groups) group.blocks = 4;
    for (uint32_t g = 0; g < most; g++) groups[g].window = g % 2 * 20;
    auto prefix = made<pkv_prefix_config>();
    auto config = made<pkv_cache_config>({.group_count = most + 1,
                                          .groups = groups.data(),
                                          .storage = PKV_STORAGE_EXTERNAL,
                                          .threads = 1,
                                          .prefix = &prefix});
    pkv_cache refused = nullptr;
    REFUSED(PKV_INVALID_ARGUMENT, pkv_cache_create(&config, &refused));
    config.group_count = used;
    const Cache cache = create(config);
    Session session = open(cache);
    Batch batch = begin(cache, {session}, {24});
    commit(batch, Text(24, 7));
    {
      const Session child = fork(session);
      const Batch copies = begin(cache, {session, child}, {1, 1});
    }
    CHECK(pkv_session_suspend(session));
    uint64_t length = 0, total = 0;
    CHECK(pkv_session_resume(session, &length, &total));
    EXPECT_EQ(16u, length);
    CHECK(pkv_cache_validate(cache));
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
    CHECK(pkv_kv_attend(compute, &memory.view, &sequences, nullptr, &query, &output, nullptr));
    for (uint32_t i = 0; i < levels; i++)
      ASSERT_NEAR(1 + 2.0 / (i + 1), out.get(i, 0, 0), 1e-4) << "sequence " << i;
  });
}

}  // namespace
}  // namespace cache_test::limits_test
