// How much longer the tokens of a text take to compute, as the config of a cache says.
#include <gtest/gtest.h>

#include <vector>

#include "../support/made.h"
#include "engine/cache/config.h"

namespace pkv {
namespace {

pkv_layer_group full(uint32_t layers, uint32_t heads, uint32_t key_dim, uint32_t value_dim = 0) {
  return made<pkv_layer_group>({.layers = layers,
                                .query_heads = heads,
                                .kv_heads = 1,
                                .key_dim = key_dim,
                                .value_dim = value_dim,
                                .blocks = 8});
}

double weight(uint64_t active_parameters, const std::vector<pkv_layer_group>& groups,
              const pkv_block_io* block_io = nullptr) {
  const auto prefix = made<pkv_prefix_config>({.active_parameters = active_parameters});
  return check_config(made<pkv_cache_config>({.group_count = static_cast<uint32_t>(groups.size()),
                                              .groups = groups.data(),
                                              .storage = PKV_STORAGE_EXTERNAL,
                                              .prefix = &prefix,
                                              .block_io = block_io}))
      .prefix->weight_per_token;
}

TEST(WeightOfDepth, OfOneGroup) {
  // Llama 3 8B: token 30,518 takes twice as long as the first one.
  EXPECT_DOUBLE_EQ(1 / 30517.578125, weight(8'000'000'000, {full(32, 32, 128)}));
  EXPECT_DOUBLE_EQ(2 * 3 * (64 + 32) / 1000.0, weight(1000, {full(2, 3, 64, 32)}));
  EXPECT_EQ(0, weight(0, {full(2, 3, 64)}));
}

TEST(WeightOfDepth, WindowsAndStatesDoNotGrow) {
  auto window = full(4, 2, 16);
  window.window = 100;
  window.sink_tokens = 4;
  const auto states = made<pkv_layer_group>(
      {.layers = 3, .kind = PKV_LAYERS_STATES, .layer_bytes = 64, .blocks = 8});
  const double seen = 4 * 2 * 32 * 104;
  EXPECT_DOUBLE_EQ(2 * 32 / (1000 + seen), weight(1000, {full(1, 2, 16), window, states}));
  EXPECT_EQ(0, weight(1000, {window, states}));
}

// The shape of blocks that only the engine can read is unknown, but not what attention computes.
TEST(WeightOfDepth, OfBlocksElsewhere) {
  auto elsewhere = full(2, 3, 64, 32);
  elsewhere.kv_heads = 0;
  elsewhere.kind = PKV_LAYERS_OPAQUE_KV;
  elsewhere.layer_bytes = 2048;
  const auto io = made<pkv_block_io>(
      {.read = [](void*, uint32_t, size_t, const uint32_t*, const uint32_t*, void*) { return 0; },
       .write = [](void*, uint32_t, size_t, const uint32_t*, const void*) { return 0; }});
  EXPECT_DOUBLE_EQ(2 * 3 * (64 + 32) / 1000.0, weight(1000, {elsewhere}, &io));
}

}  // namespace
}  // namespace pkv
