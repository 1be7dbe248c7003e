// A hybrid model has full-attention layers and sliding-window layers in one cache. Here they differ
// in shape and dtype, too.
#include <algorithm>

#include "../support/cache.h"
#include "../support/rows.h"
#include "../support/sanitizers.h"
#include "reference.h"

namespace cache_test::hybrid_test {
namespace {

constexpr uint32_t block_size = 16, window = 64, longest = pkv::test::sanitized ? 1000 : 2000;
const Model full{2, 4, 1, 32, 0, PKV_F32}, sliding{3, 6, 3, 64, 48, PKV_BF16, window};
constexpr uint32_t full_layers[] = {1, 3}, sliding_layers[] = {0, 2, 4};

pkv_layer_group group_of(const Model& model, const uint32_t* layers, uint64_t blocks) {
  return made<pkv_layer_group>({.layers = model.layers,
                                .layer_indices = layers,
                                .query_heads = model.query_heads,
                                .kv_heads = model.kv_heads,
                                .key_dim = model.key_dim,
                                .value_dim = model.value_dim,
                                .dtype = model.dtype,
                                .window = model.window,
                                .blocks = blocks});
}

Cache create_hybrid(uint64_t full_blocks, uint64_t sliding_blocks,
                    pkv_layout layout = PKV_LAYOUT_PACKED) {
  const pkv_layer_group groups[] = {group_of(full, full_layers, full_blocks),
                                    group_of(sliding, sliding_layers, sliding_blocks)};
  auto config = made<pkv_cache_config>({.group_count = 2, .groups = groups, .layout = layout});
  return create(config);
}

const Model& model_of(uint32_t layer) { return layer % 2 == 1 ? full : sliding; }

// A session and all rows that were written to it.
class Sequence {
 public:
  Sequence(pkv_cache cache, uint64_t seed) : cache_(cache), session_(open(cache)), random_(seed) {
    for (uint32_t layer = 0; layer < 5; layer++) {
      const Model& model = model_of(layer);
      all_.push_back({Rows(longest + 200, model.kv_heads, model.key_dim, model.dtype),
                      Rows(longest + 200, model.kv_heads, model.values(), model.dtype)});
    }
  }

  pkv_session session() const { return session_; }
  uint64_t length() const { return length_of(session_); }

  // Grows by n tokens and compares the last `compared` outputs of every layer with the reference.
  void grow(uint32_t n, uint32_t compared = 0) {
    const uint64_t start = length();
    Batch batch = begin(cache_, {session_}, {n});
    for (uint32_t layer = 0; layer < 5; layer++) {
      const Model& model = model_of(layer);
      Rows k(n, model.kv_heads, model.key_dim, model.dtype),
          v(n, model.kv_heads, model.values(), model.dtype), q(n, model.query_heads, model.key_dim),
          out(n, model.query_heads, model.values());
      write(batch, layer, k.fill(random_), v.fill(random_));
      attend(batch, layer, q.fill(random_), out);
      all_[layer].k.copy(start, k, 0, n);
      all_[layer].v.copy(start, v, 0, n);
      if (compared == 0) continue;
      const Attention attention = attention_of(model);
      EXPECT_LE(worst_error(q, out, n - compared, compared, all_[layer], start + n, attention), 1.0)
          << "layer " << layer << " at " << start;
    }
    commit(batch);
  }

  void expect_kept(uint64_t first, size_t n) {
    for (uint32_t layer = 0; layer < 5; layer++) {
      const KeysValues found = materialize(session_, layer, model_of(layer), first, n);
      EXPECT_TRUE(found.k == all_[layer].k.slice(first, n)) << "layer " << layer;
      EXPECT_TRUE(found.v == all_[layer].v.slice(first, n)) << "layer " << layer;
    }
  }

 private:
  pkv_cache cache_;
  Session session_;
  Random random_;
  std::vector<KeysValues> all_;
};

// The largest number of blocks: those that the window touches one step late, and those of the chunk
// being written.
constexpr uint64_t bound(uint64_t chunk) { return (window + chunk) / block_size + 2; }

TEST(Hybrid, ALongSequenceHoldsABoundedWindowAndComputesTheSame) {
  for (const pkv_layout layout : {PKV_LAYOUT_PACKED, PKV_LAYOUT_PLAIN}) {
    Cache cache = create_hybrid(longest / block_size + 2, bound(500) + 1, layout);
    Sequence sequence(cache, 1);
    for (const uint32_t chunk : {500u, 37u, 64u, 200u}) {
      sequence.grow(chunk, 4);
      sequence.grow(1, 1);
      EXPECT_LE(pool_stats_of(cache, 1).held_blocks, bound(chunk)) << "a step after the chunk";
      CHECK(pkv_cache_validate(cache));
    }
    uint64_t peak = 0;
    sequence.grow(1);
    while (sequence.length() < longest) {
      sequence.grow(1, sequence.length() % 61 == 0 ? 1 : 0);
      peak = std::max(peak, pool_stats_of(cache, 1).held_blocks);
    }
    EXPECT_LE(peak, bound(1));
    EXPECT_GE(peak, window / block_size);
    EXPECT_EQ((longest + block_size - 1) / block_size, pool_stats_of(cache, 0).held_blocks)
        << "the full layers keep everything";
    sequence.expect_kept(longest - window, window);
    CHECK(pkv_cache_validate(cache));

    // The table still counts from position 0. Entries of blocks that left the window hold
    // PKV_NO_BLOCK_ID.
    const std::vector<uint32_t> table = block_table(sequence.session(), 1);
    EXPECT_EQ(block_table(sequence.session(), 0).size(), table.size());
    EXPECT_EQ(table.size() - pool_stats_of(cache, 1).held_blocks,
              static_cast<size_t>(std::count(table.begin(), table.end(), PKV_NO_BLOCK_ID)));
    Rows k(1, sliding.kv_heads, sliding.key_dim);
    const pkv_tensor keys = k.tensor();
    REFUSED(PKV_OUT_OF_RANGE, pkv_session_read(sequence.session(), 0, 0, 1, &keys, nullptr));
    CHECK(pkv_session_read(sequence.session(), 1, 0, 1, nullptr, nullptr));
  }
}

// Blocks that the last step left behind the window are freed before a step is refused as too large.
// So all that fits beside one window works, step after step.
TEST(Hybrid, AStepThatFitsOnceTheWindowLeftWorks) {
  constexpr uint64_t blocks = 6;
  const auto needed = [](uint64_t length, uint64_t end) {
    const uint64_t begin = length < window ? 0 : (length + 1 - window) / block_size;
    return (end + block_size - 1) / block_size - begin;
  };
  Random random(9);
  uint64_t refused = 0, late = 0, before = 0;
  const int texts = pkv::test::sanitized ? 5 : 8;
  for (int text = 0; text < texts; text++) {
    Cache cache = create_hybrid(100, blocks);
    Sequence sequence(cache, 10 + text);
    for (int i = 0; i < 12; i++) {
      const uint64_t length = sequence.length();
      const auto n = static_cast<uint32_t>(random.between(1, 60));
      late += needed(length, length + n) <= blocks && needed(before, length + n) > blocks;
      before = length;
      if (needed(length, length + n) <= blocks) {
        sequence.grow(n, n);
        sequence.expect_kept(length + n - std::min<uint64_t>(length + n, window),
                             std::min<uint64_t>(length + n, window));
      } else {
        pkv_batch none = nullptr;
        const pkv_session handle = sequence.session();
        REFUSED(PKV_TOO_LARGE, pkv_batch_begin(cache, 1, &handle, &n, &none));
        REFUSED(PKV_TOO_LARGE, pkv_session_reserve(handle, length + n));
        refused++;
      }
      CHECK(pkv_cache_validate(cache));
    }
  }
  EXPECT_GT(refused, texts / 2u);
  EXPECT_GT(late, texts / 2u) << "steps that need what is behind the window";
}

// Blocks that left the window are also used for the copy of a shared tail, after an abort, and for
// a reservation.
TEST(Hybrid, BlocksBehindTheWindowAreUsedAgain) {
  Cache cache = create_hybrid(100, 6);
  Sequence sequence(cache, 40);
  sequence.grow(64);
  // Positions 0 to 95 take all blocks, and the window is 33 to 96.
  sequence.grow(32);
  EXPECT_EQ(6u, pool_stats_of(cache, 1).held_blocks);
  {
    Batch given_up = begin(cache, {sequence.session()}, {16});
    EXPECT_EQ(5u, pool_stats_of(cache, 1).held_blocks);
  }
  CHECK(pkv_cache_validate(cache));
  EXPECT_EQ(96u, sequence.length());
  sequence.expect_kept(33, 63);
  CHECK(pkv_session_reserve(sequence.session(), 128));
  EXPECT_EQ(6u, pool_stats_of(cache, 1).held_blocks);
  sequence.grow(32, 32);
  CHECK(pkv_cache_validate(cache));

  Cache another = create_hybrid(100, 7);
  Sequence shared(another, 41);
  shared.grow(64);
  shared.grow(24);  // This fills 88 of 96 slots in six blocks.
  Snapshot frozen = freeze(shared.session());
  shared.grow(1, 1);  // The copy of the tail is the seventh block.
  frozen.close();
  EXPECT_EQ(5u, pool_stats_of(another, 1).held_blocks) << "positions 16 to 88";
  shared.grow(39, 39);
  Session fork_of = fork(shared.session());
  CHECK(pkv_cache_validate(another));
  pkv_batch none = nullptr;
  const pkv_session handle = shared.session();
  const uint32_t much = 33;
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_batch_begin(another, 1, &handle, &much, &none))
      << "the fork holds them";
  EXPECT_GT(pkv_last_error_details()->blocks_short, 0u);
  fork_of.close();
  shared.grow(much, much);
  CHECK(pkv_cache_validate(another));
}

// A step that begin() accepts needs no victims, even if its blocks are still held behind the
// window.
TEST(Hybrid, VictimsOfAStepBehindWhoseWindowBlocksWait) {
  Cache cache = create_hybrid(100, 6);
  Sequence sequence(cache, 42);
  sequence.grow(64);
  sequence.grow(32);
  const pkv_session handle = sequence.session();
  const uint32_t n = 16;
  pkv_session victims[4];
  size_t count = 9;
  CHECK(pkv_batch_choose_victims(cache, 1, &handle, &n, 4, victims, &count));
  EXPECT_EQ(0u, count);
  sequence.grow(n, n);
}

TEST(Hybrid, AttentionCannotLookBeyondTheWindow) {
  Cache cache = create_hybrid(20, 20);
  Sequence sequence(cache, 2);
  sequence.grow(100);
  Batch batch = begin(cache, {sequence.session()}, {1});
  Rows k(1, sliding.kv_heads, sliding.key_dim), v(1, sliding.kv_heads, sliding.values()),
      q(1, sliding.query_heads, sliding.key_dim), out(1, sliding.query_heads, sliding.values());
  write(batch, 0, k, v);
  AttentionParams params;
  const pkv_tensor queries = q.tensor(), outputs = out.tensor();
  params.window = window + 1;
  REFUSED(PKV_OUT_OF_RANGE, pkv_batch_attend(batch, 0, &params, &queries, &outputs, nullptr));
  params.window = window;
  CHECK(pkv_batch_attend(batch, 0, &params, &queries, &outputs, nullptr));
}

TEST(Hybrid, TrimBeyondTheWindowIsRefusedAndChangesNothing) {
  Cache cache = create_hybrid(40, 40);
  Sequence sequence(cache, 4);
  for (int i = 0; i < 300; i++) sequence.grow(1);
  const std::vector<uint32_t> tables[] = {block_table(sequence.session(), 0),
                                          block_table(sequence.session(), 1)};
  for (const uint64_t length : {299u - block_size, 200u, 100u, 17u})
    REFUSED(PKV_OUT_OF_RANGE, pkv_session_trim(sequence.session(), length));
  EXPECT_EQ(300u, sequence.length());
  EXPECT_EQ(tables[0], block_table(sequence.session(), 0));
  EXPECT_EQ(tables[1], block_table(sequence.session(), 1));
  sequence.grow(1, 1);
  CHECK(pkv_session_trim(sequence.session(), 0));  // From position 0 on, nothing is missing.
  EXPECT_EQ(0u, pool_stats_of(cache).held_blocks);
  sequence.grow(100, 100);
  CHECK(pkv_cache_validate(cache));
}

TEST(Hybrid, ReservingIsAllGroupsOrNone) {
  Cache cache = create_hybrid(40, 3);
  Session session = open(cache);
  const uint32_t tokens = 48, more = 1;
  Session other = open(cache);
  CHECK(pkv_session_reserve(other, 40));
  pkv_batch batch = nullptr;
  const pkv_session handle = session;
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_batch_begin(cache, 1, &handle, &tokens, &batch));
  EXPECT_EQ(3u, pkv_last_error_details()->blocks_short);
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_session_reserve(session, more));
  EXPECT_EQ(3u, pool_stats_of(cache, 0).held_blocks) << "nothing of the other group was kept";
  CHECK(pkv_cache_validate(cache));
}

TEST(Hybrid, ThePlanAddsTheGroups) {
  const pkv_layer_group groups[] = {group_of(full, full_layers, 100),
                                    group_of(sliding, sliding_layers, 10)};
  auto config = made<pkv_cache_config>({.group_count = 2, .groups = groups});
  const uint64_t full_token = 2 * 1 * (32 + 32) * 4, sliding_token = 3 * 3 * (64 + 48) * 2;
  const pkv_cache_sizes plan = sizes_of(config);
  EXPECT_EQ(full_token + sliding_token, plan.bytes_per_token);
  EXPECT_EQ(block_size * (100 * full_token + 10 * sliding_token), plan.memory_bytes);
  EXPECT_EQ(110u, plan.blocks);
  EXPECT_EQ(1600u, plan.tokens);
}

// The memory gives all groups the same number of blocks, and no group a number of its own.
TEST(Hybrid, MemoryIsForAllGroups) {
  pkv_layer_group groups[] = {group_of(full, full_layers, 0), group_of(sliding, sliding_layers, 0)};
  auto config = made<pkv_cache_config>({.group_count = 2, .groups = groups});
  // The first group has 2 layers of 1 head with K and V of 32 floats. The second has 3 layers of 3
  // heads with K of 64 and V of 48 dims in bf16.
  constexpr uint64_t both = 16 * 2 * 64 * 4 + 16 * 3 * 3 * (64 + 48) * 2;
  const auto refused = [&](pkv_status status, const std::string& sentence) {
    pkv_cache none = nullptr;
    REFUSED(status, pkv_cache_create(&config, &none));
    EXPECT_EQ(sentence, pkv_last_error());
  };
  const std::string rule = "; set memory_bytes, or blocks of all groups";
  refused(PKV_INVALID_ARGUMENT, "blocks of group 0 and memory_bytes are 0" + rule);
  config.memory_bytes = 7 * both + both - 1;
  EXPECT_EQ(7u, sizes_of(config, 0).blocks);
  EXPECT_EQ(7u, sizes_of(config, 1).blocks);
  EXPECT_EQ(7 * both, sizes_of(config).memory_bytes);
  groups[1].blocks = 10;
  refused(PKV_INVALID_ARGUMENT, "memory_bytes is " + std::to_string(8 * both - 1) +
                                    ", and blocks of group 1 is 10" + rule);
  config.memory_bytes = 0;
  refused(PKV_INVALID_ARGUMENT, "blocks of group 0 and memory_bytes are 0" + rule);
  groups[1].blocks = 0;
  config.memory_bytes = both - 1;
  refused(PKV_TOO_LARGE, "memory_bytes is " + std::to_string(both - 1) +
                             "; the least that works is " + std::to_string(both));
}

}  // namespace
}  // namespace cache_test::hybrid_test
