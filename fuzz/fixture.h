// The objects that the target `arguments` uses.
#pragma once

#include <gtest/gtest.h>
#include <pagedkv/pagedkv.h>

#include "../tests/support/guarded.h"
#include "../tests/support/made.h"
#include "../tests/support/memory.h"
#include "../tests/support/test_clock.h"

inline constexpr uint64_t budget = 1 << 20;
inline constexpr uint32_t dim = 16, query_heads = 2, tokens = 20, fresh = 3;

// Objects that all inputs share: a cache with a session of 20 tokens, another session with a step
// of 3 in flight, and a snapshot.
struct Fixture {
  memory::Hooks hooks{budget};
  memory::Hooks index_hooks{budget};  // a pin may split a cached node, which takes memory
  cache_test::TestClock clock;
  pkv_cache cache = nullptr, prefixed = nullptr;
  pkv_session session = nullptr, stepping = nullptr;
  pkv_batch batch = nullptr;
  pkv_snapshot snapshot = nullptr;
  Guarded rows{1 << 15}, out{1 << 13}, lse{1 << 13};

  Fixture() {
    ModelConfig config;
    config.model.layers = config.model.kv_heads = 1;
    config.model.query_heads = query_heads;
    config.model.key_dim = dim;
    config.model.blocks = 16;
    config.threads = 1;
    config.allocator = hooks.allocator();
    EXPECT_EQ(PKV_OK, pkv_cache_create(&config, &cache));
    EXPECT_EQ(PKV_OK, pkv_session_open(cache, nullptr, &session));
    EXPECT_EQ(PKV_OK, pkv_session_open(cache, nullptr, &stepping));
    const pkv_tensor any = dense();
    EXPECT_EQ(PKV_OK, append(cache, session, tokens, 1, &any, &any));
    EXPECT_EQ(PKV_OK, pkv_batch_begin(cache, 1, &stepping, &fresh, &batch));
    EXPECT_EQ(PKV_OK, pkv_batch_write(batch, 0, &any, &any));
    // Computes the largest call once, because the cache keeps the working memory of attention.
    const pkv_tensor result{out.data(), PKV_F32, 0, 0, 0, 0, 0};
    float mass[query_heads] = {};
    AttentionParams params;
    params.weigh(mass, 1);
    EXPECT_EQ(PKV_OK, pkv_batch_attend(batch, 0, &params, &any, &result, &params.outputs));
    out.clear();
    EXPECT_EQ(PKV_OK, pkv_snapshot_take(session, &snapshot));
    auto prefix = made<pkv_prefix_config>({.max_events = 8});
    config.prefix = &prefix;
    config.allocator = index_hooks.allocator();
    config.clock = clock.hook();
    EXPECT_EQ(PKV_OK, pkv_cache_create(&config, &prefixed));
    cache_text();
  }

  // 40 tokens, all 0, stay in the index. They are pinned and unpinned once, so that the index has
  // its working memory.
  void cache_text() {
    const int32_t text[40] = {};
    const pkv_tensor any = dense();
    pkv_session ended = nullptr;
    EXPECT_EQ(PKV_OK, pkv_session_open(prefixed, nullptr, &ended));
    EXPECT_EQ(PKV_OK, append(prefixed, ended, std::size(text), 1, &any, &any));
    EXPECT_EQ(PKV_OK, pkv_session_set_tokens(ended, 0, std::size(text), text));
    EXPECT_EQ(PKV_OK, pkv_session_close(ended));
    for (const pkv_hint_action action : {PKV_HINT_PIN, PKV_HINT_UNPIN}) {
      const auto hint = made<pkv_hint>({.action = action, .end = 32});
      EXPECT_EQ(PKV_OK, pkv_hint_prompt(prefixed, TextArg(text), &hint, nullptr));
    }
  }

  pkv_tensor dense() { return {rows.data(), PKV_F32, 0, 0, 0, 0, 0}; }
};

inline Fixture& fixture() {
  static Fixture* const instance = new Fixture;
  return *instance;
}
