// Bugs that other engines had, each with a test of its own that shows the right behaviour, and the
// number of the engine's issue.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <set>
#include <thread>

#include "../support/cache.h"
#include "../support/rows.h"

namespace cache_test::known_bugs_test {
namespace {

const Model model{2, 2, 2, 32};

std::vector<pkv_block_ref> take(pkv_pool pool, size_t n) {
  std::vector<pkv_block_ref> blocks(n);
  CHECK(pkv_pool_alloc(pool, n, blocks.data()));
  return blocks;
}

// A list that has a block twice must not put it into the free list twice, where two sequences would
// get it (vLLM 42571).
TEST(KnownBugs, AListThatReleasesABlockTwiceIsRefused) {
  for (const size_t n : {2u, 64u, 65u, 200u}) {
    Pool pool = make_pool(256);
    std::vector<pkv_block_ref> blocks = take(pool, n), list = blocks;
    list.back() = list.front();
    REFUSED(PKV_NOT_HELD, pkv_pool_release(pool, n, list.data()));
    CHECK(pkv_pool_release(pool, n, blocks.data()));
    const std::vector<pkv_block_ref> all = take(pool, 256);
    std::set<uint32_t> ids;
    for (const pkv_block_ref block : all)
      EXPECT_TRUE(ids.insert(PKV_BLOCK_ID(block)).second) << "given out twice";
    CHECK(pkv_pool_validate(pool));
  }
}

// An entry that outlived its block must not name the block's next owner. Its generation has ended
// (kvcached 362).
TEST(KnownBugs, AStaleEntryOfAReusedBlockIsRefused) {
  Pool pool = make_pool(1);
  const pkv_block_ref old = take(pool, 1)[0];
  CHECK(pkv_pool_release(pool, 1, &old));
  const pkv_block_ref reused = take(pool, 1)[0];
  ASSERT_EQ(PKV_BLOCK_ID(old), PKV_BLOCK_ID(reused));
  REFUSED(PKV_NOT_HELD, pkv_pool_retain(pool, 1, &old));
  REFUSED(PKV_NOT_HELD, pkv_pool_release(pool, 1, &old));
  CHECK(pkv_pool_release(pool, 1, &reused));
}

// Tokens that a step has not computed yet must not be shared, and an abort must not leave them
// behind (vLLM 43569, 37152).
TEST(KnownBugs, AStepIsNotSharedBeforeItIsCommitted) {
  Cache cache = create(config_of(model, 16));
  Session session = open(cache);
  Random random(3);
  const std::vector<KeysValues> before = step(cache, session, model, 20, random);
  Batch batch = begin(cache, {session}, {30});
  pkv_session child;
  pkv_snapshot snapshot;
  REFUSED(PKV_BUSY, pkv_session_fork(session, &child));
  REFUSED(PKV_BUSY, pkv_snapshot_take(session, &snapshot));
  KeysValues half = rows_of(model, 30);
  write(batch, 0, half.k.fill(random), half.v.fill(random));
  batch.close();
  Session after = fork(session);
  EXPECT_EQ(20u, length_of(after));
  for (uint32_t layer = 0; layer < model.layers; layer++)
    EXPECT_TRUE(before[layer] == materialize(after, layer, model, 0, 20));
  EXPECT_EQ(2u, pool_stats_of(cache).held_blocks);
}

// A block of a preempted sequence must not be given to another sequence while it is still read
// (SGLang 38480).
TEST(KnownBugs, APreemptedSequenceStaysReadableInASnapshot) {
  Cache cache = create(config_of(model, 4));
  Session session = open(cache), other = open(cache);
  Random random(4);
  const std::vector<KeysValues> rows = step(cache, session, model, 40, random);
  Snapshot reader = freeze(session);
  CHECK(pkv_session_suspend(session));
  const pkv_session handle = other;
  const uint32_t too_many = 32;
  pkv_batch batch;
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_batch_begin(cache, 1, &handle, &too_many, &batch));
  step(cache, other, model, 16, random);
  Session again = thaw(reader);
  for (uint32_t layer = 0; layer < model.layers; layer++)
    EXPECT_TRUE(rows[layer] == materialize(again, layer, model, 0, 40));
}

// The length is a multiple of the block size, the step has no tokens, or one block is missing (vLLM
// 52897, 3239).
TEST(KnownBugs, AFullBlockNeedsNoNextOne) {
  Cache cache = create(config_of(model, 2));
  Session session = open(cache);
  Random random(5);
  step(cache, session, model, 0, random);
  EXPECT_EQ(0u, pool_stats_of(cache).held_blocks);
  step(cache, session, model, 16, random);
  EXPECT_EQ(1u, pool_stats_of(cache).held_blocks) << "a full block needs no next one";
  step(cache, session, model, 0, random);
  step(cache, session, model, 16, random);
  EXPECT_EQ(2u, pool_stats_of(cache).held_blocks);
  const pkv_session handle = session;
  const uint32_t one = 1;
  pkv_batch batch;
  REFUSED(PKV_TOO_LARGE, pkv_batch_begin(cache, 1, &handle, &one, &batch));
  // All blocks of the fork are full, so nothing is copied.
  Session child = fork(session);
  EXPECT_EQ(0u, stats_of(cache).copied_blocks);
  CHECK(pkv_session_trim(child, 31));
  const pkv_session forked = child;
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_batch_begin(cache, 1, &forked, &one, &batch));
  EXPECT_EQ(1u, pkv_last_error_details()->blocks_short) << "the copy of the shared tail";
}

// A fork must count its own references: closing the parent must not free what the child uses (TVM
// 16666).
TEST(KnownBugs, AForkKeepsItsBlocksWhenTheParentIsClosed) {
  for (const bool parent_first : {true, false}) {
    Cache cache = create(config_of(model, 8));
    Session parent = open(cache);
    Random random(6);
    const std::vector<KeysValues> rows = step(cache, parent, model, 40, random);
    Session child = fork(parent), grandchild = fork(child);
    (parent_first ? parent : child).close();
    Session greedy = open(cache);
    step(cache, greedy, model, 80, random);  // This takes everything that is free.
    EXPECT_EQ(0u, pool_stats_of(cache).free_blocks);
    EXPECT_TRUE(rows[0] == materialize(grandchild, 0, model, 0, 40));
    EXPECT_EQ(3u, pool_stats_of(cache, 0).shared_blocks);
    CHECK(pkv_cache_validate(cache));
  }
}

// A part-filled tail that two sessions share must be copied before either writes to it (atlas
// 1193).
TEST(KnownBugs, WritingAfterAForkCopiesThePartFilledTail) {
  Cache cache = create(config_of(model, 8));
  Session parent = open(cache);
  Random random(7);
  std::vector<KeysValues> begin_rows = step(cache, parent, model, 21, random);
  Session child = fork(parent);
  const std::vector<KeysValues> ours = step(cache, parent, model, 3, random),
                                theirs = step(cache, child, model, 5, random);
  EXPECT_TRUE(ours[1] == materialize(parent, 1, model, 21, 3));
  EXPECT_TRUE(theirs[1] == materialize(child, 1, model, 21, 5));
  EXPECT_TRUE(begin_rows[1] == materialize(child, 1, model, 0, 21));
  EXPECT_EQ(1u, stats_of(cache).copied_blocks);
  EXPECT_EQ(block_table(parent)[0], block_table(child)[0]);
  EXPECT_NE(block_table(parent)[1], block_table(child)[1]);
}

// A copy must not be a reference to its source, whose changes it would show (atlas 1193).
TEST(KnownBugs, CopiesDoNotChangeWithTheirSource) {
  for (const pkv_layout layout : {PKV_LAYOUT_PACKED, PKV_LAYOUT_PLAIN}) {
    ModelConfig config = config_of(model, 16);
    config.layout = layout;
    Cache cache = create(config);
    Session source = open(cache);
    Random random(8);
    const std::vector<KeysValues> rows = step(cache, source, model, 30, random);
    Snapshot snapshot = freeze(source);
    Session copy = fork(source);
    CHECK(pkv_session_trim(source, 5));
    step(cache, source, model, 25, random);
    EXPECT_TRUE(rows[1] == materialize(copy, 1, model, 0, 30));
    CHECK(pkv_session_trim(copy, 0));
    step(cache, copy, model, 30, random);
    Session thawed = thaw(snapshot);
    EXPECT_TRUE(rows[1] == materialize(thawed, 1, model, 0, 30));
  }
}

// Blocks that have left the window must leave the table. Others get them, and their rows would be
// read (vLLM 42272).
TEST(KnownBugs, TheTableHasNoBlocksBehindTheWindow) {
  Model windowed = model;
  windowed.window = 20;
  Cache cache = create(config_of(windowed, 5));
  Session session = open(cache), other = open(cache);
  Random random(9);
  for (int i = 0; i < 12; i++) step(cache, session, windowed, 8, random);
  const std::vector<uint32_t> table = block_table(session);
  const size_t held = static_cast<size_t>(
      std::count_if(table.begin(), table.end(), [](uint32_t id) { return id != PKV_NO_BLOCK_ID; }));
  EXPECT_EQ(held, pool_stats_of(cache).held_blocks);
  EXPECT_LE(held, 3u);
  for (size_t i = 0; i + held < table.size(); i++) EXPECT_EQ(PKV_NO_BLOCK_ID, table[i]);
  step(cache, other, windowed, 32, random);
  for (const uint32_t id : block_table(other))
    EXPECT_EQ(0, std::count(table.begin(), table.end(), id)) << "a block of both";
}

// A reused block must not decode to NaN where nothing has been written yet, in any stored type
// (vLLM 47574).
TEST(KnownBugs, AReusedBlockFullOfNanGivesFiniteOutputs) {
  for (const pkv_dtype dtype : stored_dtypes) {
    Model narrow{1, 2, 2, 32};
    narrow.dtype = dtype;
    Cache cache = create(config_of(narrow, 1));
    Random random(10);
    {
      Session poisoned = open(cache);
      Batch batch = begin(cache, {poisoned}, {16});
      Rows nan(16, narrow.kv_heads, narrow.key_dim);
      nan.each([&](size_t r, uint32_t h, uint32_t d) {
        nan.set(r, h, d, std::numeric_limits<float>::quiet_NaN());
      });
      write(batch, 0, nan, nan);
      commit(batch);
    }
    Session session = open(cache);
    Batch batch = begin(cache, {session}, {3});
    Rows k(3, narrow.kv_heads, narrow.key_dim), v(k), q(k), out(k);
    write(batch, 0, k.fill(random), v.fill(random));
    attend(batch, 0, q.fill(random), out);
    bool finite = true;
    out.each([&](size_t r, uint32_t h, uint32_t d) { finite &= std::isfinite(out.get(r, h, d)); });
    EXPECT_TRUE(finite) << "dtype " << dtype;
  }
}

// A trim must not report success without trimming, nor remove one token too many (llama.cpp 26695,
// mlx-lm 1528).
TEST(KnownBugs, ATrimRemovesJustTheTokensItIsTold) {
  for (const pkv_layout layout : {PKV_LAYOUT_PACKED, PKV_LAYOUT_PLAIN})
    for (uint64_t length = 0; length <= 50; length++) {
      ModelConfig config = config_of(model, 8);
      config.layout = layout;
      Cache cache = create(config);
      Session session = open(cache);
      Random random(length);
      const std::vector<KeysValues> rows = step(cache, session, model, 50, random);
      CHECK(pkv_session_trim(session, length));
      ASSERT_EQ(length, length_of(session));
      ASSERT_EQ((length + 15) / 16, pool_stats_of(cache).held_blocks);
      ASSERT_EQ(length, stats_of(cache).filled_slots);
      const std::vector<KeysValues> more = step(cache, session, model, 4, random);
      const KeysValues found = materialize(session, 1, model, 0, length + 4);
      ASSERT_TRUE(found.k.slice(0, length) == rows[1].k.slice(0, length));
      ASSERT_TRUE(found.k.slice(length, 4) == more[1].k);
    }
}

// A count of references must not fall below zero and wrap (LMCache 5090).
TEST(KnownBugs, AReferenceCountNeverFallsBelowZero) {
  Pool pool = make_pool(4);
  const pkv_block_ref block = take(pool, 1)[0];
  CHECK(pkv_pool_retain(pool, 1, &block));
  CHECK(pkv_pool_release(pool, 1, &block));
  CHECK(pkv_pool_release(pool, 1, &block));
  for (int i = 0; i < 3; i++) REFUSED(PKV_NOT_HELD, pkv_pool_release(pool, 1, &block));
  auto stats = made<pkv_pool_stats>();
  CHECK(pkv_pool_get_stats(pool, &stats));
  EXPECT_EQ(0u, stats.references);
  CHECK(pkv_pool_validate(pool));
}

// A preemption must not choose a sequence that is closed already, and free it again (LMCache 5090).
TEST(KnownBugs, AClosedSequenceIsNoVictim) {
  Cache cache = create(config_of(model, 8, PKV_STORAGE_EXTERNAL));
  Session kept = open(cache), freed = open(cache), preempted = open(cache);
  for (const pkv_session each : {kept.get(), freed.get(), preempted.get()}) grow(cache, each, 32);
  const pkv_session stale = freed, list[] = {kept, freed};
  freed.close();
  CHECK(pkv_session_suspend(preempted));
  REFUSED(PKV_STALE_HANDLE, pkv_session_suspend(stale));
  const uint32_t counts[] = {80, 1};
  pkv_session victims[4];
  size_t count = 99;
  REFUSED(PKV_STALE_HANDLE, pkv_batch_choose_victims(cache, 2, list, counts, 4, victims, &count));
  CHECK(pkv_batch_choose_victims(cache, 1, list, counts, 4, victims, &count));
  EXPECT_EQ(0u, count) << "neither the closed nor the suspended one has anything to give";
  grow(cache, kept, 80);
}

// Handles are slots of a lock-free list. An index that was recycled meanwhile must not be taken for
// the old one: many threads open and close sessions, and no two open ones are the same (iceoryx
// 2351).
TEST(KnownBugs, HandlesOpenedByManyThreadsAreDistinct) {
  Cache cache = create(config_of(model, 8, PKV_STORAGE_EXTERNAL));
  constexpr int threads = 4, rounds = 3000;
  std::atomic<int> wrong{0};
  std::vector<std::thread> running;
  for (int t = 0; t < threads; t++)
    running.emplace_back([&, t] {
      for (int i = 0; i < rounds; i++) {
        pkv_session mine[3];
        for (auto& each : mine) wrong += pkv_session_open(cache, nullptr, &each) != PKV_OK;
        for (auto& each : mine) wrong += pkv_session_set_priority(each, t * rounds + i) != PKV_OK;
        std::this_thread::yield();
        for (auto& each : mine) {
          auto info = made<pkv_session_info>();
          wrong += pkv_session_get_info(each, &info) != PKV_OK || info.priority != t * rounds + i;
          wrong += pkv_session_close(each) != PKV_OK;
          wrong += pkv_session_close(each) != PKV_STALE_HANDLE;
        }
      }
    });
  for (std::thread& each : running) each.join();
  EXPECT_EQ(0, wrong);
  EXPECT_EQ(0u, stats_of(cache).sessions);
}

// A negative count in an operation on a sequence must not become a write out of bounds
// (CVE-2026-43629, CVE-2026-21869).
TEST(KnownBugs, NegativeCountsAreRefused) {
  Cache cache = create(config_of(model, 8));
  Session session = open(cache);
  Random random(12);
  step(cache, session, model, 20, random);
  const auto minus_one = [](auto) { return static_cast<uint64_t>(-1); };
  int32_t tokens[4] = {1, 2, 3, 4};
  const pkv_status range[] = {pkv_session_get_tokens(session, minus_one(0), 1, tokens),
                              pkv_session_get_tokens(session, 0, SIZE_MAX, tokens),
                              pkv_session_set_tokens(session, minus_one(0), 2, tokens),
                              pkv_session_trim(session, minus_one(0))};
  for (const pkv_status status : range)
    EXPECT_TRUE(status == PKV_OUT_OF_RANGE || status == PKV_OVERFLOW) << pkv_status_name(status);
  const pkv_session handle = session;
  const uint32_t negative = static_cast<uint32_t>(-1);
  pkv_batch batch;
  REFUSED(PKV_TOO_LARGE, pkv_batch_begin(cache, 1, &handle, &negative, &batch));
  Rows rows(4, model.kv_heads, model.key_dim);
  pkv_tensor tensor = rows.tensor();
  tensor.row_stride = -64;
  REFUSED(PKV_INVALID_ARGUMENT, pkv_session_read(session, 0, 0, 4, &tensor, &tensor));
  EXPECT_EQ(20u, length_of(session));
}

// Products of sizes must be checked, or too little memory would be allocated (CVE-2026-43629,
// CVE-2026-21869).
TEST(KnownBugs, SizesThatOverflowAreRefused) {
  ModelConfig config = config_of({65536, 65536, 65536, 576}, INT32_MAX);
  config.block_size = 256;
  pkv_cache cache;
  auto plan = made<pkv_cache_sizes>();
  REFUSED(PKV_OVERFLOW, pkv_cache_create(&config, &cache));
  REFUSED(PKV_OVERFLOW, pkv_cache_compute_sizes(&config, PKV_ALL_GROUPS, &plan));
}

}  // namespace
}  // namespace cache_test::known_bugs_test
