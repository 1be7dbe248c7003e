#include "hits.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <unordered_map>

#include "cache.h"
#include "figures.h"

namespace pkv::serve {

namespace {

constexpr uint32_t hash_tokens = 512;    // of a trace's hash ids
constexpr uint32_t derived_tokens = 64;  // where the texts themselves tell

struct Text {
  std::vector<uint32_t> blocks;  // dense ids; equal ids have equal text before them, too
  size_t asked;                  // the prompt's; the rest is the answer, which is cached as well
};

// The trace in blocks: a block's id stands for its text and all before it.
struct Blocks {
  uint32_t tokens;
  std::vector<Text> texts;
  size_t distinct = 0, asked = 0;
};

std::vector<uint64_t> chain(const std::vector<int32_t>& tokens) {
  std::vector<uint64_t> ids;
  uint64_t state = 0;
  for (size_t i = 0; i < tokens.size(); i++) {
    state = mix(state, static_cast<uint64_t>(tokens[i]));
    if ((i + 1) % derived_tokens == 0) ids.push_back(state);
  }
  return ids;
}

Blocks blocks_of_trace(const Trace& trace) {
  const bool hashed = std::all_of(trace.requests.begin(), trace.requests.end(),
                                  [](const Request& r) { return r.hashed > 0; });
  Blocks result{hashed ? hash_tokens : derived_tokens, {}};
  std::unordered_map<uint64_t, uint32_t> dense;
  for (const Request& request : trace.requests) {
    std::vector<uint64_t> ids;
    if (hashed)
      for (size_t i = 0; i < request.hashed; i++)
        ids.push_back(mix(i == 0 ? 0 : ids.back(), request.prompt[i].id));
    else
      ids = chain(text_of(request));
    Text text{{}, hashed ? ids.size() : request.input / derived_tokens};
    for (const uint64_t id : ids)
      text.blocks.push_back(dense.emplace(id, static_cast<uint32_t>(dense.size())).first->second);
    result.asked += text.asked;
    result.texts.push_back(std::move(text));
  }
  result.distinct = dense.size();
  return result;
}

// The library's own index: one block of 16 tokens stands for a block of the trace.
uint64_t library_hits(const Blocks& blocks, uint64_t capacity, pkv_eviction policy) {
  constexpr uint32_t size = 16;
  pkv_prefix_config prefix;
  check(pkv_prefix_config_init(&prefix, sizeof prefix), "config");
  prefix.eviction = policy;
  pkv_cache_config config;
  check(pkv_cache_config_init(&config, sizeof config), "config");
  config.storage = PKV_STORAGE_NONE;
  config.block_size = size;
  config.layers = config.query_heads = config.kv_heads = 1;
  config.key_dim = 16;
  config.blocks = capacity;
  config.prefix = &prefix;
  pkv_cache cache;
  check(pkv_cache_create(&config, &cache), "cache");
  uint64_t hits = 0;
  std::vector<int32_t> tokens;
  for (const Text& text : blocks.texts) {
    tokens.clear();
    for (size_t i = 0; i < std::min<size_t>(text.blocks.size(), capacity); i++)
      tokens.insert(tokens.end(), size, static_cast<int32_t>(text.blocks[i]));
    pkv_session session;
    pkv_batch batch;
    uint64_t matched;
    check(pkv_session_open(cache, nullptr, &session), "opening a session");
    check(pkv_session_match_prefix(session, std::min(tokens.size(), text.asked * size),
                                   tokens.data(), &matched),
          "match");
    hits += matched / size;
    const auto rest = static_cast<uint32_t>(tokens.size() - matched);
    check(pkv_batch_begin(cache, 1, &session, &rest, nullptr, &batch), "begin");
    check(pkv_batch_commit(batch, tokens.data() + matched), "commit");
    check(pkv_session_close(session), "close");
  }
  check(pkv_cache_destroy(cache), "destroy");
  return hits;
}

// Evicts the block that is asked for last, or never again (Belady 1966). Whoever asks for a block
// asks for all before it, so that with ties going to the longer text what is evicted is always an
// end.
uint64_t belady_hits(const Blocks& blocks, uint64_t capacity) {
  constexpr size_t never = SIZE_MAX;
  std::vector<std::vector<size_t>> uses(
      blocks.distinct);  // requests that ask for a block, last first
  for (size_t r = blocks.texts.size(); r-- > 0;)
    for (size_t i = 0; i < blocks.texts[r].asked; i++) uses[blocks.texts[r].blocks[i]].push_back(r);
  using Key = std::tuple<size_t, size_t, uint32_t>;  // next use, depth, block
  std::set<Key> cached;
  std::vector<size_t> next(blocks.distinct, never);
  std::vector<bool> present(blocks.distinct, false);
  uint64_t hits = 0;
  for (size_t r = 0; r < blocks.texts.size(); r++) {
    const Text& text = blocks.texts[r];
    for (size_t i = 0; i < text.asked && present[text.blocks[i]]; i++) hits++;
    for (size_t i = 0; i < text.blocks.size(); i++) {
      const uint32_t block = text.blocks[i];
      if (present[block]) cached.erase({next[block], i, block});
      while (!uses[block].empty() && uses[block].back() <= r) uses[block].pop_back();
      next[block] = uses[block].empty() ? never : uses[block].back();
      cached.insert({next[block], i, block});
      present[block] = true;
    }
    for (; cached.size() > capacity; cached.erase(std::prev(cached.end())))
      present[std::get<2>(*cached.rbegin())] = false;
  }
  return hits;
}

}  // namespace

nlohmann::json hits_by_capacity(const Trace& trace) {
  const Blocks blocks = blocks_of_trace(trace);
  nlohmann::json result{{"block_tokens", blocks.tokens},
                        {"asked_blocks", blocks.asked},
                        {"distinct_blocks", blocks.distinct}};
  const auto share = [&](uint64_t hits) {
    return Figures::ratio(static_cast<double>(hits), static_cast<double>(blocks.asked));
  };
  for (uint64_t capacity = 100; capacity < 4 * blocks.distinct; capacity *= 10)
    for (const uint64_t c : {capacity, 2 * capacity, 5 * capacity}) {
      if (c >= 2 * blocks.distinct) continue;
      result["capacities"].push_back(c);
      result["lru"].push_back(share(library_hits(blocks, c, PKV_EVICTION_LRU)));
      result["lfu"].push_back(share(library_hits(blocks, c, PKV_EVICTION_LFU)));
      result["belady"].push_back(share(belady_hits(blocks, c)));
    }
  return result;
}

}  // namespace pkv::serve
