// Sends requests through the C interface, with ids of blocks only. Each request matches, computes
// the rest in one step and ends.
#pragma once

#include <functional>

#include "../support/cache.h"

namespace replay {

using cache_test::check;

// With hashes of a few bits (-Dhash_bits), the learned policy learns nothing and is about as good
// as recency.
#if defined(PKV_HASH_BITS)
constexpr bool learns = false;
#else
constexpr bool learns = true;
#endif

// Makes a cache of storage EXTERNAL with a prefix index.
inline cache_test::Cache cache_of(uint64_t blocks, uint32_t block_size, pkv_eviction eviction) {
  auto prefix = made<pkv_prefix_config>({.eviction = eviction});
  ModelConfig config = cache_test::config_of({}, blocks, PKV_STORAGE_EXTERNAL);
  config.block_size = block_size;
  config.prefix = &prefix;
  return cache_test::create(config);
}

inline uint64_t match(pkv_session session, const std::vector<int32_t>& tokens) {
  uint64_t matched = 0;
  CHECK(pkv_session_admit(session, tokens.size(), tokens.data(), 0, &matched));
  return matched;
}

// Runs a request and leaves its session open. Returns how many tokens matched.
inline uint64_t run(pkv_cache cache, pkv_session session, const std::vector<int32_t>& tokens) {
  const uint64_t matched = match(session, tokens);
  if (matched == tokens.size()) return matched;
  cache_test::Batch batch =
      cache_test::begin(cache, {session}, {static_cast<uint32_t>(tokens.size() - matched)});
  cache_test::commit(batch, std::span(tokens).subspan(matched));
  return matched;
}

inline uint64_t serve(pkv_cache cache, const std::vector<int32_t>& tokens) {
  cache_test::Session session = cache_test::open(cache);
  return run(cache, session, tokens);
}

}  // namespace replay
