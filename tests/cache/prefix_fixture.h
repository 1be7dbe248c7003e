// A small cache with a prefix index, and texts to serve with it.
#pragma once

#include <algorithm>
#include <string>

#include "../support/cache.h"
#include "../support/hints.h"
#include "../support/rows.h"
#include "../support/test_clock.h"

namespace cache_test {

using Text = std::vector<int32_t>;

inline Text operator+(Text a, const Text& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Returns n tokens that differ from those of any other name.
inline Text text(int32_t name, size_t n) {
  Text tokens(n);
  for (size_t i = 0; i < n; i++) tokens[i] = name * 100000 + static_cast<int32_t>(i);
  return tokens;
}

class Prefix : public testing::Test {
 protected:
  const Model model_{2, 2, 2, 16};
  TestClock clock_;
  Cache cache_;
  uint32_t window_ = 0;  // The window of the second group.
  // No other thread uses the cache, so it may be validated at any time.
  bool alone_ = true;
  // Applies to the next cache that is made, as do the fields below.
  pkv_store_config* store_ = nullptr;
  const pkv_runner* runner_ = nullptr;
  const pkv_logger* logger_ = nullptr;
  pkv_dtype dtype_ = PKV_F32;
  uint32_t block_size_ = 16;
  uint64_t window_blocks_ = 0;  // The blocks of the second group; 0: as many as the first has.
  uint32_t sinks_ = 0;          // The sinks of the second group.
  pkv_rotation rotation_ = PKV_ROTATION_NONE;

  void make(uint64_t blocks, pkv_storage storage = PKV_STORAGE_INTERNAL,
            pkv_eviction eviction = PKV_EVICTION_LRU, uint32_t window = 0) {
    auto prefix = made<pkv_prefix_config>({.eviction = eviction});
    make(blocks, prefix, storage, window);
  }

  void make(uint64_t blocks, const pkv_prefix_config& prefix,
            pkv_storage storage = PKV_STORAGE_INTERNAL, uint32_t window = 0) {
    pkv_layer_group groups[2];
    for (uint32_t i = 0; i < 2; i++) {
      groups[i] = made<pkv_layer_group>();
      groups[i].layers = 1;
      groups[i].query_heads = groups[i].kv_heads = model_.kv_heads;
      groups[i].key_dim = model_.key_dim;
      groups[i].dtype = dtype_;
      groups[i].rotation = rotation_;
    }
    groups[1].window = window_ = window;
    groups[0].blocks = blocks;
    groups[1].blocks = window_blocks_ != 0 ? window_blocks_ : blocks;
    groups[1].sink_tokens = sinks_;
    auto config = made<pkv_cache_config>({.group_count = 2,
                                          .groups = groups,
                                          .storage = storage,
                                          .block_size = block_size_,
                                          .prefix = &prefix,
                                          .store = store_,
                                          .runner = runner_,
                                          .logger = logger_,
                                          .clock = clock_.hook()});
    cache_ = create(config);
  }

  ~Prefix() override {
    if (cache_ != nullptr) CHECK(pkv_cache_validate(cache_));
  }

  Session open_salted(const std::string& salt, pkv_prefix_use use = PKV_PREFIX_SHARE,
                      pkv_retention retention = PKV_RETENTION_NORMAL) {
    auto config = made<pkv_session_config>(
        {.prefix_use = use, .salt = salt.data(), .salt_size = salt.size()});
    pkv_session session;
    CHECK(pkv_session_open(cache_, &config, &session));
    if (retention != PKV_RETENTION_NORMAL)
      hint(session, PKV_HINT_SET_RETENTION, {.retention = retention});
    return Session(session);
  }

  uint64_t match(pkv_session session, const Text& tokens) {
    uint64_t matched = 99;
    CHECK(pkv_session_admit(session, tokens.size(), tokens.data(), 0, &matched));
    EXPECT_EQ(matched, length_of(session));
    CHECK(pkv_cache_validate(cache_));
    return matched;
  }

  // Appends the rest of a text. The K and V of a token depend on the text up to it, as in a model.
  void extend(pkv_session session, const Text& whole) {
    const uint64_t from = length_of(session);
    const uint32_t n = static_cast<uint32_t>(whole.size() - from);
    Batch batch = begin(cache_, {session}, {n});
    for (uint32_t layer = 0; layer < model_.layers; layer++) {
      Rows k = rows(whole, layer, from), v = rows(whole, layer + 10, from);
      write(batch, layer, k, v);
    }
    commit(batch, std::span(whole).subspan(from));
    if (alone_) CHECK(pkv_cache_validate(cache_));
  }

  void check_content(pkv_session session, const Text& whole, uint64_t from = 0) {
    const uint64_t length = length_of(session);
    std::vector<int32_t> ids(length);
    CHECK(pkv_session_get_tokens(session, 0, length, ids.data()));
    EXPECT_TRUE(std::equal(ids.begin(), ids.end(), whole.begin()));
    for (uint32_t layer = 0; layer < model_.layers; layer++) {
      const KeysValues found = materialize(session, layer, model_, from, length - from);
      EXPECT_TRUE(found.k == rows(whole, layer, from).slice(0, length - from))
          << "keys of layer " << layer;
      EXPECT_TRUE(found.v == rows(whole, layer + 10, from).slice(0, length - from))
          << "values of layer " << layer;
    }
  }

  // Serves a request: its session matches what is cached, computes the rest and ends. Returns how
  // many tokens matched.
  uint64_t serve(const Text& whole, const std::string& salt = "",
                 pkv_retention retention = PKV_RETENTION_NORMAL) {
    Session session = open_salted(salt, PKV_PREFIX_SHARE, retention);
    const uint64_t matched = match(session, whole);
    extend(session, whole);
    check_content(session, whole,
                  window_ == 0 ? 0 : whole.size() - std::min<uint64_t>(whole.size(), window_ - 1));
    return matched;
  }

  void clear() { CHECK(pkv_prefix_clear(cache_, nullptr, PKV_ALL_SALTS)); }
  PrefixStats figures(const std::string& salt) {
    return prefix_stats_of(cache_, salt.data(), salt.size());
  }
  PrefixStats figures() { return prefix_stats_of(cache_); }

 private:
  Rows rows(const Text& whole, uint32_t layer, uint64_t from) const {
    Rows result(whole.size() - from, model_.kv_heads, model_.key_dim);
    uint32_t hash = 7 + layer;
    for (uint64_t i = 0; i < whole.size(); i++) {
      hash = hash * 31 + static_cast<uint32_t>(whole[i]);
      if (i < from) continue;
      for (uint32_t h = 0; h < model_.kv_heads; h++)
        for (uint32_t d = 0; d < model_.key_dim; d++)
          result.set(i - from, h, d, static_cast<float>(hash % 1000 + 7 * h + d));
    }
    return result;
  }
};

}  // namespace cache_test
