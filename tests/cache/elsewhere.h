// A cache whose blocks only an engine can read, and that engine.
#pragma once

#include <numeric>

#include "engine_memory.h"

namespace cache_test {

using Text = std::vector<int32_t>;

inline Text tokens(int32_t first, size_t n) {
  Text result(n);
  std::iota(result.begin(), result.end(), first);
  return result;
}

// A cache and the engine that has its blocks: two groups, the second one with a window.
struct Elsewhere {
  static constexpr uint32_t window = 24;
  EngineMemory engine;
  Cache cache;

  struct Options {
    uint64_t blocks = 32;
    const pkv_store_config* store = nullptr;
    uint64_t block_bytes = EngineMemory::block_bytes;
    const pkv_clock* clock = nullptr;
  };
  Elsewhere() : Elsewhere(Options()) {}
  explicit Elsewhere(const Options& options) : engine(2, options.blocks) {
    const pkv_layer_group groups[] = {made<pkv_layer_group>({.layers = 1,
                                                             .kind = PKV_LAYERS_OPAQUE_KV,
                                                             .layer_bytes = options.block_bytes,
                                                             .blocks = options.blocks}),
                                      made<pkv_layer_group>({.layers = 1,
                                                             .kind = PKV_LAYERS_OPAQUE_KV,
                                                             .window = window,
                                                             .layer_bytes = options.block_bytes,
                                                             .blocks = options.blocks})};
    auto prefix = made<pkv_prefix_config>({.eviction = PKV_EVICTION_LRU});
    auto config = made<pkv_cache_config>({.group_count = 2,
                                          .groups = groups,
                                          .storage = PKV_STORAGE_EXTERNAL,
                                          .prefix = &prefix,
                                          .store = options.store,
                                          .block_io = engine.hooks(),
                                          .clock = options.clock});
    cache = create(config);
  }

  Session compute(const Text& whole) {
    Session session = open(cache);
    uint64_t matched = 99;
    CHECK(pkv_session_admit(session, whole.size(), whole.data(), 0, &matched));
    extend(session, whole);
    return session;
  }
  void extend(pkv_session session, const Text& whole) {
    const uint64_t from = length_of(session);
    const Text rest(whole.begin() + static_cast<int64_t>(from), whole.end());
    Batch batch = begin(cache, {session}, {static_cast<uint32_t>(rest.size())});
    for (uint32_t group = 0; group < 2; group++) engine.write(batch, group, 1, rest);
    commit(batch, rest);
  }
  void extend_without_ids(pkv_session session, const Text& marks) {
    Batch batch = begin(cache, {session}, {static_cast<uint32_t>(marks.size())});
    for (uint32_t group = 0; group < 2; group++) engine.write(batch, group, 1, marks);
    commit(batch);
  }
  void check(pkv_session session, const Text& whole) { check(session, whole, whole); }
  // Checks the ids of a session and what the engine has for its tokens.
  void check(pkv_session session, const Text& whole, const Text& marks) {
    ASSERT_EQ(whole, tokens_of(session, length_of(session)));
    for (uint32_t group = 0; group < 2; group++) {
      const std::vector<int64_t> slots = slots_of(session, whole.size(), group);
      for (size_t i = 0; i < slots.size(); i++) {
        ASSERT_TRUE(slots[i] >= 0 || (group == 1 && i + window <= whole.size())) << i;
        ASSERT_TRUE(slots[i] < 0 || engine.at(group, slots[i]) == static_cast<uint64_t>(marks[i]))
            << "token " << i << " of group " << group;
      }
    }
  }
  uint64_t used() { return pool_stats_of(cache).held_blocks - stats_of(cache).evictable_blocks; }
  uint64_t cached(const Text& whole) {
    uint64_t tokens = 99;
    CHECK(pkv_prefix_probe(cache, TextArg(whole), &tokens));
    return tokens;
  }
};

}  // namespace cache_test
