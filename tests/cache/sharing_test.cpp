// Sessions share blocks by forks, copy-on-write, trims, aborts and snapshots, and never see each
// other's changes.
#include <algorithm>

#include "../support/cache.h"
#include "../support/rows.h"
#include "memory_kinds.h"

namespace cache_test::sharing_test {
namespace {

const Model model{2, 4, 2, 32};

class Sharing : public testing::TestWithParam<MemoryKind> {
 protected:
  Cache make(uint64_t blocks) const {
    ModelConfig config = config_of(model, blocks);
    config.layout = GetParam().layout;
    config.memory_directory = GetParam().directory;
    return create(config);
  }

  // Returns everything a session holds, layer by layer.
  std::vector<KeysValues> content(pkv_session session) const {
    std::vector<KeysValues> layers;
    for (uint32_t layer = 0; layer < model.layers; layer++)
      layers.push_back(materialize(session, layer, model, 0, length_of(session)));
    return layers;
  }

  // Returns the outputs of a next decode step. The step is aborted, so the session stays as it is.
  std::vector<Rows> next_output(pkv_cache cache, pkv_session session) const {
    Random random(99);
    std::vector<Rows> outputs;
    Batch batch = begin(cache, {session}, {1});
    for (uint32_t layer = 0; layer < model.layers; layer++) {
      Rows k(1, model.kv_heads, model.key_dim), v(k), q(1, model.query_heads, model.key_dim),
          out(q);
      write(batch, layer, k.fill(random), v.fill(random));
      attend(batch, layer, q.fill(random), out);
      outputs.push_back(out);
    }
    return outputs;
  }
};

TEST_P(Sharing, AForkHoldsTheSameAndGoesItsOwnWay) {
  for (const uint32_t length : {16u, 32u, 20u, 1u, 0u}) {  // These are full and part-filled tails.
    Cache cache = make(64);
    Random random(length);
    Session parent = open(cache);
    if (length > 0) step(cache, parent, model, length, random);
    const uint64_t used = pool_stats_of(cache).held_blocks;
    Session child = fork(parent);
    CHECK(pkv_cache_validate(cache));
    EXPECT_EQ(used, pool_stats_of(cache).held_blocks);
    EXPECT_EQ(block_table(parent), block_table(child));
    const auto before = content(parent);
    EXPECT_TRUE(before == content(child));
    EXPECT_TRUE(next_output(cache, parent) == next_output(cache, child));

    step(cache, child, model, 20, random);
    CHECK(pkv_cache_validate(cache));
    EXPECT_TRUE(before == content(parent));
    const auto childs = content(child);
    step(cache, parent, model, 30, random);
    CHECK(pkv_cache_validate(cache));
    EXPECT_TRUE(childs == content(child));
    for (uint32_t layer = 0; layer < model.layers; layer++) {
      EXPECT_TRUE(before[layer] == materialize(child, layer, model, 0, length));
      EXPECT_TRUE(before[layer] == materialize(parent, layer, model, 0, length));
    }
  }
}

TEST_P(Sharing, ForksOfForksCopyOnlyTheirTail) {
  Cache cache = make(64);
  Random random(1);
  std::vector<Session> line;
  line.push_back(open(cache));
  step(cache, line[0], model, 40, random);
  std::vector<std::vector<KeysValues>> contents = {content(line[0])};
  for (int generation = 1; generation < 5; generation++) {
    line.push_back(fork(line.back()));
    const uint64_t copied = stats_of(cache).copied_blocks, used = pool_stats_of(cache).held_blocks;
    step(cache, line.back(), model, 3, random);
    EXPECT_EQ(copied + 1, stats_of(cache).copied_blocks);
    // Sessions have 40 tokens and each fork adds 3, so the third fork needs a block behind the
    // third one.
    EXPECT_EQ(used + (generation == 3 ? 2 : 1), pool_stats_of(cache).held_blocks)
        << "generation " << generation;
    contents.push_back(content(line.back()));
    CHECK(pkv_cache_validate(cache));
  }
  for (size_t i = 0; i < line.size(); i++)
    EXPECT_TRUE(contents[i] == content(line[i])) << "generation " << i;
  // The ancestors are closed first. What the descendants share stays.
  for (size_t i = 0; i < line.size(); i++) {
    for (size_t later = i; later < line.size(); later++)
      EXPECT_TRUE(contents[later] == content(line[later]));
    line[i].close();
    CHECK(pkv_cache_validate(cache));
  }
  EXPECT_EQ(64u, pool_stats_of(cache).free_blocks);
}

TEST_P(Sharing, AThousandForksCostNoBlockUntilTheyDiverge) {
  Cache cache = make(1100);
  Random random(2);
  Session parent = open(cache);
  step(cache, parent, model, 100, random);
  const auto before = content(parent);
  std::vector<Session> forks;
  for (int i = 0; i < 1000; i++) forks.push_back(fork(parent));
  EXPECT_EQ(7u, pool_stats_of(cache).held_blocks);
  EXPECT_EQ(7u * 1001, pool_stats_of(cache, 0).references);
  CHECK(pkv_cache_validate(cache));
  for (size_t i = 0; i < forks.size(); i++) {
    step(cache, forks[i], model, 1, random);
    EXPECT_EQ(7u + i + 1, pool_stats_of(cache).held_blocks);
  }
  EXPECT_EQ(1000u, stats_of(cache).copied_blocks);
  EXPECT_TRUE(before == content(parent));
  CHECK(pkv_cache_validate(cache));
  forks.clear();
  EXPECT_EQ(7u, pool_stats_of(cache).held_blocks);
  CHECK(pkv_cache_validate(cache));
}

TEST_P(Sharing, ForksInOneBatchCopyAllButOneTail) {
  // 20 tokens in 2 blocks, and 3 blocks for the tails of 4 sessions: there is no other.
  Cache cache = make(5);
  Random random(20);
  std::vector<Session> all;
  all.push_back(open(cache));
  step(cache, all[0], model, 20, random);
  for (int i = 1; i < 5; i++) all.push_back(fork(all[0]));
  const auto before = content(all[0]);
  {
    pkv_batch none;
    const std::vector<pkv_session> five(all.begin(), all.end());
    const std::vector<uint32_t> ones(5, 1);
    REFUSED(PKV_OUT_OF_BLOCKS, pkv_batch_begin(cache, 5, five.data(), ones.data(), &none));
    EXPECT_EQ(1u, pkv_last_error_details()->blocks_short);
    EXPECT_STREQ(
        "begin needs 4 blocks in group 0, 3 of 5 are free (1 short over all groups): "
        "suspend what pkv_batch_choose_victims names, and resume none before this step "
        "has begun",
        pkv_last_error());
    size_t victims;
    pkv_session victim;
    CHECK(pkv_batch_choose_victims(cache, 5, five.data(), ones.data(), 1, &victim, &victims));
    EXPECT_EQ(1u, victims);
    EXPECT_EQ(five.back(), victim);
  }
  all.pop_back();
  const std::vector<pkv_session> four(all.begin(), all.end());
  {
    Batch batch = begin(cache, four, {1, 2, 3, 4});
    std::vector<uint32_t> from(4), to(4);
    size_t count;
    CHECK(pkv_batch_get_block_copies(batch, 0, 4, from.data(), to.data(), &count));
    EXPECT_EQ(3u, count);
    EXPECT_EQ(0u, pool_stats_of(cache).free_blocks);
    EXPECT_EQ(3u, stats_of(cache).copied_blocks);
    for (uint32_t layer = 0; layer < model.layers; layer++) {
      Rows k(10, model.kv_heads, model.key_dim), v(k);
      write(batch, layer, k.fill(random), v.fill(random));
    }
    CHECK(pkv_cache_validate(cache));
  }  // aborts
  CHECK(pkv_cache_validate(cache));
  EXPECT_EQ(3u, pool_stats_of(cache).free_blocks);
  for (const Session& session : all) {
    EXPECT_TRUE(before == content(session));
    EXPECT_EQ(block_table(all[0]), block_table(session));
  }
  Batch batch = begin(cache, four, {1, 2, 3, 4});
  std::vector<KeysValues> written;
  for (uint32_t layer = 0; layer < model.layers; layer++) {
    Rows k(10, model.kv_heads, model.key_dim), v(k);
    write(batch, layer, k.fill(random), v.fill(random));
  }
  commit(batch);
  CHECK(pkv_cache_validate(cache));
  EXPECT_EQ(21u + 22 + 23 + 24, stats_of(cache).tokens);
  EXPECT_EQ(16u + 5 + 6 + 7 + 8, stats_of(cache).filled_slots);
  for (const Session& session : all)
    for (uint32_t layer = 0; layer < model.layers; layer++)
      EXPECT_TRUE(before[layer] == materialize(session, layer, model, 0, 20));
}

TEST_P(Sharing, ATailIsKeptByTheOneThatHoldsMostOfIt) {
  for (const bool last : {false, true}) {
    Cache cache = make(8);
    Random random(21);
    Session longer = open(cache);
    step(cache, longer, model, 24, random);
    Session shorter = fork(longer);
    CHECK(pkv_session_trim(shorter, 18));
    const auto of_longer = content(longer), of_shorter = content(shorter);
    const std::vector<uint32_t> table = block_table(longer);
    const std::vector<pkv_session> both = last ? std::vector<pkv_session>{shorter, longer}
                                               : std::vector<pkv_session>{longer, shorter};
    for (const bool commits : {false, true}) {
      Batch batch = begin(cache, both, {3, 3});
      EXPECT_EQ(3u, pool_stats_of(cache).held_blocks);
      EXPECT_EQ(table, block_table(longer)) << "it would overwrite rows of the longer one";
      for (uint32_t layer = 0; layer < model.layers; layer++) {
        Rows k(6, model.kv_heads, model.key_dim), v(k);
        write(batch, layer, k.fill(random), v.fill(random));
      }
      CHECK(pkv_cache_validate(cache));
      if (commits) commit(batch);
      batch.close();
      CHECK(pkv_cache_validate(cache));
      for (uint32_t layer = 0; layer < model.layers; layer++) {
        EXPECT_TRUE(of_longer[layer] == materialize(longer, layer, model, 0, 24));
        EXPECT_TRUE(of_shorter[layer] == materialize(shorter, layer, model, 0, 18));
      }
    }
    EXPECT_EQ(27u, length_of(longer));
    EXPECT_EQ(21u, length_of(shorter));
  }
}

TEST_P(Sharing, ATailThatSomebodyElseHoldsIsCopiedByAll) {
  Cache cache = make(8);
  Random random(22);
  Session a = open(cache);
  step(cache, a, model, 20, random);
  Session b = fork(a), idle = fork(a);
  const auto before = content(idle);
  const auto copies = [&](const std::vector<pkv_session>& sessions,
                          const std::vector<uint32_t>& counts) {
    Batch batch = begin(cache, sessions, counts);
    return pool_stats_of(cache).held_blocks - 2;
  };
  EXPECT_EQ(2u, copies({a, b}, {1, 1})) << "a session that is in no step";
  EXPECT_EQ(2u, copies({a, b, idle}, {1, 1, 0})) << "a session that writes nothing";
  EXPECT_EQ(2u, copies({a, b, idle}, {1, 1, 1}));
  Snapshot snapshot = freeze(idle);
  EXPECT_EQ(3u, copies({a, b, idle}, {1, 1, 1})) << "a snapshot";
  snapshot.close();
  // A step in flight may be aborted, so it still holds what it copied from.
  Batch other = begin(cache, {idle}, {1});
  EXPECT_EQ(3u, copies({a, b}, {1, 1})) << "another step";
  other.close();
  idle.close();
  EXPECT_EQ(1u, copies({a, b}, {1, 1}));
  CHECK(pkv_cache_validate(cache));
}

TEST_P(Sharing, TrimAfterAForkLeavesTheOtherAlone) {
  Cache cache = make(64);
  Random random(3);
  Session parent = open(cache);
  step(cache, parent, model, 60, random);
  Session child = fork(parent);
  const auto before = content(parent);
  for (const uint64_t length : {50u, 48u, 33u, 20u, 0u}) {
    CHECK(pkv_session_trim(child, length));
    CHECK(pkv_cache_validate(cache));
    EXPECT_TRUE(before == content(parent));
    for (uint32_t layer = 0; layer < model.layers; layer++)
      EXPECT_TRUE(materialize(parent, layer, model, 0, length) ==
                  materialize(child, layer, model, 0, length));
    Session again = fork(child);
    // This writes into a block that two others hold and have filled further.
    step(cache, again, model, 5, random);
    EXPECT_TRUE(before == content(parent));
    CHECK(pkv_cache_validate(cache));
  }
}

TEST_P(Sharing, AnAbortLeavesEverythingAsItWas) {
  Cache cache = make(64);
  Random random(4);
  Session parent = open(cache), whole = open(cache);
  step(cache, parent, model, 20, random);
  step(cache, whole, model, 32, random);
  Session child = fork(parent);  // Its tail is shared, so a step copies it.
  struct State {
    std::vector<std::vector<KeysValues>> contents;
    std::vector<std::vector<Rows>> outputs;
    std::vector<std::vector<uint32_t>> tables;
    pkv_cache_stats stats;
    uint64_t held_blocks;
  };
  const auto look = [&] {
    State state;
    for (const pkv_session session : {parent.get(), whole.get(), child.get()}) {
      state.contents.push_back(content(session));
      state.outputs.push_back(next_output(cache, session));
      state.tables.push_back(block_table(session));
    }
    state.stats = stats_of(cache);
    state.held_blocks = pool_stats_of(cache).held_blocks;
    return state;
  };
  const State before = look();
  for (const uint32_t layers_written : {0u, 1u, 2u}) {
    Batch batch = begin(cache, {child, whole, parent}, {30, 1, 0});
    for (uint32_t layer = 0; layer < layers_written; layer++) {
      Rows k(31, model.kv_heads, model.key_dim), v(k);
      write(batch, layer, k.fill(random), v.fill(random));
    }
    CHECK(pkv_cache_validate(cache));
    batch.close();
    CHECK(pkv_cache_validate(cache));
    const State after = look();
    EXPECT_TRUE(before.contents == after.contents);
    EXPECT_TRUE(before.outputs == after.outputs);
    EXPECT_EQ(before.tables, after.tables);
    EXPECT_EQ(before.held_blocks, after.held_blocks);
    EXPECT_EQ(before.stats.tokens, after.stats.tokens);
    EXPECT_EQ(before.stats.filled_slots, after.stats.filled_slots);
    EXPECT_EQ(before.stats.commits, after.stats.commits);
    EXPECT_EQ(before.stats.committed_tokens, after.stats.committed_tokens);
    EXPECT_EQ(0u, after.stats.batches);
  }
}

TEST_P(Sharing, ASnapshotOutlivesItsSession) {
  Cache cache = make(64);
  Random random(5);
  Session session = open(cache);
  step(cache, session, model, 37, random);
  const auto frozen = content(session);
  Snapshot snapshot = freeze(session);
  step(cache, session, model, 20, random);
  session.close();
  CHECK(pkv_cache_validate(cache));
  EXPECT_EQ(3u, pool_stats_of(cache).held_blocks);
  for (int i = 0; i < 3; i++) {
    Session restored = thaw(snapshot);
    EXPECT_TRUE(frozen == content(restored));
    step(cache, restored, model, 1 + 20 * i, random);
    CHECK(pkv_cache_validate(cache));
  }
  Session last = thaw(snapshot);
  snapshot.close();
  EXPECT_TRUE(frozen == content(last));
  last.close();
  EXPECT_EQ(64u, pool_stats_of(cache).free_blocks);
  CHECK(pkv_cache_validate(cache));
}

TEST_P(Sharing, ClosingInAnyOrderGivesEverythingBack) {
  std::vector<int> order = {0, 1, 2, 3};
  do {
    Cache cache = make(64);
    Random random(6);
    Session a = open(cache);
    step(cache, a, model, 21, random);
    Session b = fork(a);
    Snapshot s = freeze(b);
    step(cache, b, model, 9, random);
    Session c = thaw(s);
    step(cache, c, model, 2, random);
    for (const int which : order) {
      if (which == 0) a.close();
      if (which == 1) b.close();
      if (which == 2) s.close();
      if (which == 3) c.close();
      CHECK(pkv_cache_validate(cache));
    }
    EXPECT_EQ(64u, pool_stats_of(cache).free_blocks);
    EXPECT_EQ(0u, stats_of(cache).filled_slots);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_P(Sharing, ACacheIsDestroyedWithEverythingOpen) {
  Cache cache = make(64);
  Random random(7);
  Session a = open(cache), b = open(cache), idle = open(cache, 50);
  step(cache, a, model, 21, random);
  Session c = fork(a);
  Snapshot s = freeze(a);
  Batch batch = begin(cache, {a, b}, {30, 4});
  CHECK(pkv_cache_validate(cache));
  const pkv_cache handle = cache;
  cache.close();
  uint64_t length = 0;
  for (Session* session : {&a, &b, &c, &idle}) {
    REFUSED(PKV_STALE_HANDLE, pkv_session_get_length(*session, &length));
    REFUSED(PKV_STALE_HANDLE, pkv_session_close(*session));
    session->forget();
  }
  REFUSED(PKV_STALE_HANDLE, pkv_batch_commit(batch, 0, nullptr));
  REFUSED(PKV_STALE_HANDLE, pkv_snapshot_close(s));
  REFUSED(PKV_STALE_HANDLE, pkv_cache_validate(handle));
  batch.forget();
  s.forget();
}

INSTANTIATE_TEST_SUITE_P(Kinds, Sharing, testing::ValuesIn(memory_kinds), kind_name);

}  // namespace
}  // namespace cache_test::sharing_test
