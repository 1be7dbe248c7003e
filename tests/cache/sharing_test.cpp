// How many blocks sessions that share some take and copy. (That they never see each other's changes
// is what the random machine of world_test.cpp shows.)
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
};

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

INSTANTIATE_TEST_SUITE_P(Kinds, Sharing, testing::ValuesIn(memory_kinds), kind_name);

}  // namespace
}  // namespace cache_test::sharing_test
