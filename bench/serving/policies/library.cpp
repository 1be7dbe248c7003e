#include <algorithm>
#include <cmath>

#include "../cache.h"
#include "replay.h"

namespace pkv::serve {

namespace {

// One block of the library stands for one of the trace. It has as many tokens, up to the longest
// block that the library allows, because the index evicts a number of tokens at once, not of
// blocks.
uint32_t library_tokens(const Blocks& blocks) { return std::min(blocks.tokens, 256u); }

pkv_cache create(const Blocks& blocks, uint64_t capacity, const LibraryPolicy& policy) {
  auto prefix = made<pkv_prefix_config>();
  prefix.eviction = policy.eviction;
  // Scaled to blocks of the library, which may be shorter than those of the trace. A token attends
  // to each token before it with 2 * 16 multiplications.
  if (policy.weighs_time)
    prefix.active_parameters = static_cast<uint64_t>(2 * 16 * attention_doubles_at *
                                                     library_tokens(blocks) / blocks.tokens);
  if (blocks.quota > 0)
    prefix.max_tokens_per_salt =
        std::max<uint64_t>(1, static_cast<uint64_t>(blocks.quota * static_cast<double>(capacity))) *
        library_tokens(blocks);
  auto group = made<pkv_layer_group>();
  group.layers = group.query_heads = group.kv_heads = 1;
  group.key_dim = 16;
  group.blocks = capacity;
  auto config = made<pkv_cache_config>();
  config.groups = &group;
  config.storage = PKV_STORAGE_EXTERNAL;
  config.block_size = library_tokens(blocks);
  config.prefix = &prefix;
  pkv_cache cache;
  check(pkv_cache_create(&config, &cache), "cache");
  return cache;
}

pkv_session open(pkv_cache cache, const Blocks& blocks, const Text& text) {
  auto config = made<pkv_session_config>();
  if (blocks.quota > 0) {
    config.salt = &text.tenant;
    config.salt_size = sizeof text.tenant;
  }
  pkv_session session;
  check(pkv_session_open(cache, &config, &session), "opening a session");
  return session;
}

pkv_hint return_in(double seconds) {
  const uint64_t ms = seconds == never_returns
                          ? PKV_RETURN_NEVER
                          : static_cast<uint64_t>(std::clamp(1000 * seconds, 1.0, 1e11));
  return {.struct_size = sizeof(pkv_hint), .action = PKV_HINT_EXPECT_RETURN, .duration_ms = ms};
}

}  // namespace

Saved replay_library(const Blocks& blocks, uint64_t capacity, const LibraryPolicy& policy) {
  const pkv_cache cache = create(blocks, capacity, policy);
  const uint32_t block_size = library_tokens(blocks);
  Saved saved;
  std::vector<int32_t> tokens;
  for (const Text& text : blocks.texts) {
    tokens.clear();
    for (size_t i = 0; i < std::min<size_t>(text.blocks.size(), capacity); i++)
      tokens.insert(tokens.end(), block_size, static_cast<int32_t>(text.blocks[i]));
    const pkv_session session = open(cache, blocks, text);
    uint64_t matched;
    check(pkv_session_admit(session, std::min(tokens.size(), text.asked * block_size),
                            tokens.data(), 0, &matched),
          "match");
    saved.add(matched / block_size, blocks.tokens);
    if (const auto rest = static_cast<uint32_t>(tokens.size() - matched); rest > 0) {
      pkv_batch batch;
      check(pkv_batch_begin(cache, 1, &session, &rest, &batch), "begin");
      check(pkv_batch_commit(batch, rest, tokens.data() + matched), "commit");
    }
    if (policy.hints && text.expected_return > 0) {
      const pkv_hint hint = return_in(text.expected_return);
      check(pkv_hint_session(session, &hint, nullptr), "hint");
    }
    check(pkv_session_close(session), "close");
  }
  check(pkv_cache_destroy(cache), "destroy");
  return saved;
}

}  // namespace pkv::serve
