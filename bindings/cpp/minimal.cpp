// The whole life of a cache from C++, in one step of made-up keys, values and queries: the same as
// bindings/c/examples/minimal.c, and its block table, a fork, and calls that fail.
#include <cstdio>
#include <pagedkv/pagedkv.hpp>

constexpr uint32_t LAYERS = 2, QUERY_HEADS = 4, KV_HEADS = 2, DIM = 32, TOKENS = 20;

int main() try {
  // All keys are alike, so attention gives the mean of the values so far.
  std::vector<float> k(TOKENS * KV_HEADS * DIM), v(k.size());
  std::vector<float> q(TOKENS * QUERY_HEADS * DIM), out(q.size());
  for (uint32_t i = 0; i < v.size(); i++) v[i] = float(i / (KV_HEADS * DIM));
  std::vector<int32_t> tokens(TOKENS);
  for (uint32_t i = 0; i < TOKENS; i++) tokens[i] = int32_t(100 + i);

  // [step]
  pagedkv::LayerGroup model;
  model.layers = LAYERS;
  model.query_heads = QUERY_HEADS;
  model.kv_heads = KV_HEADS;
  model.key_dim = DIM;
  model.blocks = 64;
  pagedkv::CacheConfig config;
  config.groups = &model;
  pagedkv::Cache cache(config);
  pagedkv::Session session = cache.open();

  pagedkv::Batch batch = cache.begin({session}, {TOKENS});
  for (uint32_t layer = 0; layer < LAYERS; layer++) {
    batch.write(layer, k, v);
    batch.attend(layer, q, out);
  }
  batch.commit(tokens);
  // [step end]

  const float mean = out[(TOKENS - 1) * QUERY_HEADS * DIM];
  std::printf("token %u attends to %u tokens: %.2f (expected %.2f)\nblock table:", TOKENS - 1,
              TOKENS, double(mean), (TOKENS - 1) / 2.0);
  for (uint32_t block : session.block_table()) std::printf(" %u", block);

  // A fork shares every block; an object that goes out of scope is closed.
  {
    pagedkv::Session fork = session.fork();
    std::printf("\ntwo sessions hold %u blocks", unsigned(cache.pool_stats().held_blocks));
  }
  std::printf("; %u session is left\n", cache.stats().sessions);

  try {
    session.trim(TOKENS + 1);
  } catch (const pagedkv::Error& error) {
    std::printf("refused, as it should be: %s: %s\n", error.name(), error.what());
  }
  // Running out of blocks does not throw: then there is no batch.
  pagedkv::Session other = cache.open();
  other.reserve(62 * 16);
  if (!cache.try_begin({session}, {64}))
    std::printf("a step is short of %u blocks\n", unsigned(pkv_last_error_details()->blocks_short));
  return 0;
} catch (const pagedkv::Error& error) {
  std::fprintf(stderr, "%s: %s\n", error.name(), error.what());
  return 1;
}
