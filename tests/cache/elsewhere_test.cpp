// Layer groups whose blocks only the engine can read: what a config may say, what the library still
// does with their ids, and what it refuses.
#include <cstring>
#include <numeric>

#include "../support/rows.h"
#include "engine_memory.h"

namespace cache_test::elsewhere_test {
namespace {

using Text = std::vector<int32_t>;

// A group of one layer whose blocks are the engine's.
pkv_layer_group elsewhere(uint32_t window = 0) {
  return made<pkv_layer_group>({.layers = 1,
                                .kind = PKV_LAYERS_OPAQUE_KV,
                                .window = window,
                                .layer_bytes = EngineMemory::block_bytes,
                                .blocks = 16});
}

struct Config : ModelConfig {
  std::vector<pkv_layer_group> all;
  pkv_prefix_config index = made<pkv_prefix_config>({.eviction = PKV_EVICTION_LRU});

  Config(EngineMemory& engine, std::vector<pkv_layer_group> given) : all(std::move(given)) {
    groups = all.data();
    group_count = static_cast<uint32_t>(all.size());
    storage = PKV_STORAGE_EXTERNAL;
    block_io = engine.hooks();
    prefix = &index;
  }
  Config(const Config&) = delete;
};

void refused(pkv_status status, const pkv_cache_config& config, const char* sentence) {
  pkv_cache cache;
  ASSERT_EQ(status, pkv_cache_create(&config, &cache)) << pkv_last_error();
  EXPECT_NE(nullptr, std::strstr(pkv_last_error(), sentence)) << pkv_last_error();
}

TEST(Elsewhere, AConfigMustSayHowBlocksAreCopied) {
  EngineMemory engine(1, 16);
  Config config(engine, {elsewhere()});
  create(config);
  config.block_io = nullptr;
  refused(PKV_INVALID_ARGUMENT, config, "block_io is NULL, but group 0 has kind OPAQUE_KV");
  pkv_block_io io = *engine.hooks();
  config.block_io = &io;
  io.read = nullptr;
  refused(PKV_INVALID_ARGUMENT, config, "block_io lacks its read function");
  io = *engine.hooks();
  io.write = nullptr;
  refused(PKV_INVALID_ARGUMENT, config, "block_io lacks its write function");
  io = *engine.hooks();
  io.reserved = 1;
  refused(PKV_INVALID_ARGUMENT, config, "block_io: reserved is 1, not 0");
  io.reserved = 0;
  config.all[0] = group_of({});
  refused(PKV_INVALID_ARGUMENT, config, "block_io is given, but no group is opaque");
}

TEST(Elsewhere, WhatTheLibraryCannotUseIsRefused) {
  EngineMemory engine(2, 16);
  Config config(engine, {elsewhere()});
  config.all[0].kv_heads = 1;
  refused(PKV_INVALID_ARGUMENT, config, "group 0: kv_heads is 1; it must be 0 with kind OPAQUE_KV");
  config.all[0] = elsewhere();
  config.all[0].sink_tokens = 4;
  refused(PKV_INVALID_ARGUMENT, config, "sink_tokens is 4 without a window");
  config.all[0].sink_tokens = 0;
  // A file has no larger ones, so what has them could not be saved.
  config.all[0].layers = 2;
  config.all[0].layer_bytes = (uint64_t{1} << 39) + 1;
  refused(PKV_INVALID_ARGUMENT, config,
          "2 layers with 549755813889 bytes each is larger than 2^40");
  config.all[0].layer_bytes = 0;
  refused(PKV_INVALID_ARGUMENT, config,
          "layer_bytes is 0; it must be 1 or more with kind OPAQUE_KV");
  config.all[0] = elsewhere();
  config.all[0].max_verify_tokens = 1;
  refused(PKV_INVALID_ARGUMENT, config, "max_verify_tokens is 1; it must be 0 with kind OPAQUE_KV");
  config.all[0].kind = PKV_LAYERS_OPAQUE_STATES;
  create(config);
  config.all[0].window = 16;
  refused(PKV_INVALID_ARGUMENT, config, "window is 16; it must be 0 with kind OPAQUE_STATES");
  config.all[0].window = 0;
  config.all[0].query_heads = 1;
  refused(PKV_INVALID_ARGUMENT, config, "query_heads is 1; it must be 0 with kind OPAQUE_STATES");
  config.all[0] = elsewhere();
  config.prefix = nullptr;
  config.storage = PKV_STORAGE_INTERNAL;
  config.memory_directory = "/dev/shm";
  refused(PKV_UNSUPPORTED, config, "memory_directory: all blocks are in the engine's memory");
  config.memory_directory = nullptr;
  set_blocks(config, 0);
  config.memory_bytes = 1 << 20;
  config.groups_share_memory = 1;
  refused(PKV_UNSUPPORTED, config, "groups_share_memory: the blocks of group 0");

  Config mixed(engine, {elsewhere(), group_of({})});
  set_blocks(mixed, 16);
  refused(PKV_UNSUPPORTED, mixed, "group 0 has kind OPAQUE_KV and group 1 kind KV");
  mixed.storage = PKV_STORAGE_INTERNAL;
  create(mixed);
}

TEST(Elsewhere, APlanCountsTheEnginesBytes) {
  EngineMemory engine(2, 16);
  Config config(engine, {elsewhere(), elsewhere(24)});
  pkv_cache_sizes plan = sizes_of(config);
  EXPECT_EQ(2 * EngineMemory::block_bytes, plan.bytes_per_block);
  EXPECT_EQ(2u * 9, plan.bytes_per_token) << "130 bytes of 16 tokens, rounded up";
  EXPECT_EQ(32 * EngineMemory::block_bytes, plan.memory_bytes);
  EXPECT_EQ(16u * 16, plan.tokens);
  EXPECT_EQ(0u, stats_of(create(config)).mapped_bytes) << "the library has none of them";
  set_blocks(config, 0);
  config.memory_bytes = 20 * EngineMemory::block_bytes + 7;
  EXPECT_EQ(20u, sizes_of(config).blocks);
  config.all[0].kind = PKV_LAYERS_OPAQUE_STATES;
  EXPECT_EQ(9u, sizes_of(config).bytes_per_token) << "states do not grow with tokens";
  // Groups can share the engine's memory: pages then have a block of each.
  config.groups_share_memory = 1;
  Cache cache = create(config);
  Session session = open(cache, 64);
  EXPECT_EQ(4u, block_table(session, 1).size());
  CHECK(pkv_cache_validate(cache));
}

// Serves a text, whose marks the engine keeps. Returns how much of it was cached.
uint64_t serve(const Cache& cache, EngineMemory& engine, const Text& text) {
  Session session = open(cache);
  uint64_t matched = 99;
  CHECK(pkv_session_admit(session, text.size(), text.data(), 0, &matched));
  Batch batch = begin(cache, {session}, {static_cast<uint32_t>(text.size() - matched)});
  for (uint32_t group = 0; group < 2; group++)
    engine.write(batch, group, 1, Text(text.begin() + static_cast<int64_t>(matched), text.end()));
  commit(batch, std::span(text).subspan(matched));
  CHECK(pkv_cache_validate(cache));
  for (uint32_t group = 0; group < 2; group++) {
    const std::vector<int64_t> slots = slots_of(session, text.size(), group);
    for (size_t i = 0; i < slots.size(); i++)
      if (slots[i] >= 0) {
        EXPECT_EQ(static_cast<uint64_t>(text[i]), engine.at(group, slots[i]));
      }
  }
  return matched;
}

TEST(Elsewhere, IdsAreSharedCopiedAndEvictedAsElsewhere) {
  for (const uint32_t window : {0u, 24u}) {
    EngineMemory engine(2, 8);
    Config config(engine, {elsewhere(), elsewhere(window)});
    set_blocks(config, 8);
    Cache cache = create(config);
    Text text(70);
    std::iota(text.begin(), text.end(), 1);
    EXPECT_EQ(0u, serve(cache, engine, text));
    EXPECT_EQ(64u, serve(cache, engine, text));
    text[42] = 1000;
    EXPECT_EQ(42u, serve(cache, engine, text));
    for (int32_t other = 2000; other < 20000; other += 1000) {
      std::iota(text.begin(), text.end(), other);
      EXPECT_EQ(0u, serve(cache, engine, text));
    }
    EXPECT_EQ(0u, engine.reads + engine.writes) << "no step calls a hook";
  }
}

TEST(Elsewhere, CallsThatNeedTheNumbersAreRefused) {
  EngineMemory engine(2, 16);
  Config config(engine, {group_of({}), elsewhere(), elsewhere()});
  config.storage = PKV_STORAGE_INTERNAL;
  set_blocks(config, 16);
  config.all[2].kind = PKV_LAYERS_OPAQUE_STATES;
  Cache cache = create(config);
  Session session = open(cache);
  Batch batch = begin(cache, {session}, {3});
  Random random(1);
  KeysValues rows = random_rows({}, 3, random);
  write(batch, 0, rows.k, rows.v);
  const pkv_tensor k = rows.k.tensor();
  const auto expect_sentence = [] {
    EXPECT_NE(nullptr, std::strstr(pkv_last_error(), "only the engine can read the blocks of"))
        << pkv_last_error();
  };
  REFUSED(PKV_UNSUPPORTED, pkv_batch_write(batch, 1, &k, &k));
  expect_sentence();
  commit(batch);
  REFUSED(PKV_UNSUPPORTED, pkv_session_read(session, 1, 0, 1, &k, &k));
  expect_sentence();
  auto view = made<pkv_kv_view>();
  REFUSED(PKV_UNSUPPORTED, pkv_cache_get_kv_view(cache, 1, &view));
  expect_sentence();
  unsigned char state[40];
  REFUSED(PKV_UNSUPPORTED, pkv_session_get_state(session, 2, 3, sizeof state, state));
  expect_sentence();
  CHECK(pkv_cache_get_kv_view(cache, 0, &view));
  EXPECT_EQ(3u, length_of(session));
  CHECK(pkv_cache_validate(cache));
}

}  // namespace
}  // namespace cache_test::elsewhere_test
