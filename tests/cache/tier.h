// A small cache with a prefix index over a store in memory.
#pragma once

#include "../support/memory_store.h"
#include "prefix_fixture.h"

namespace cache_test {

inline constexpr uint32_t long_time = 60000;  // milliseconds

class TierTest : public Prefix {
 protected:
  MemoryStore memory_;
  pkv_store table_ = memory_.table();
  pkv_store_config config_ = made<pkv_store_config>({.store = &table_});

  TierTest() { store_ = &config_; }
  ~TierTest() override {
    memory_.go_on();
    cache_.close();
    EXPECT_EQ(created_, memory_.closed) << "each cache closes its store once";
  }

  void make(uint64_t blocks, uint32_t window = 0) {
    cache_.close();
    table_ = memory_.table();
    Prefix::make(blocks, PKV_STORAGE_INTERNAL, PKV_EVICTION_LRU, window);
    created_ += config_.store == &table_;
  }
  StoreStats stats() { return store_stats_of(cache_); }
  void flush() { EXPECT_EQ(0u, flush_store(cache_)); }
  void press(uint64_t blocks) {
    Session session = open(cache_);
    CHECK(pkv_session_reserve(session, blocks * block_size_));
  }
  void prefetch(const Text& tokens, const std::string& salt = "") {
    hint(cache_, PKV_HINT_PREFETCH, tokens, salt);
  }
  // Waits for a prefetch. Returns how many tokens of the text are in memory then.
  uint64_t wait(const Text& tokens, const std::string& salt = "", uint32_t time = long_time,
                uint64_t* pending = nullptr) {
    uint64_t cached = 99;
    CHECK(pkv_prefetch_wait(cache_, TextArg(tokens, salt), time, &cached, pending));
    return cached;
  }
  uint64_t fetch(const Text& tokens, const std::string& salt = "") {
    prefetch(tokens, salt);
    const uint64_t cached = wait(tokens, salt);
    CHECK(pkv_cache_validate(cache_));
    return cached;
  }
  uint64_t count_pending(const Text& tokens, const std::string& salt = "") {
    uint64_t pending = 99;
    wait(tokens, salt, 0, &pending);
    return pending;
  }
  void set_quota(uint64_t tokens, const std::string& salt) {
    CHECK(pkv_prefix_set_quota(cache_, salt.data(), salt.size(), tokens));
  }
  void cancel(const Text& tokens) { CHECK(pkv_prefetch_cancel(cache_, TextArg(tokens))); }
  // Computes a text, waits until the store has it, and lets it leave the memory.
  void store_away(const Text& whole, const std::string& salt = "") {
    serve(whole, salt);
    flush();
    clear();
    EXPECT_EQ(0u, figures().cached_blocks);
  }
  void check_found(const Text& whole, uint64_t tokens, const std::string& salt = "") {
    Session session = open_salted(salt);
    EXPECT_EQ(tokens, match(session, whole));
    check_content(session, whole,
                  window_ == 0 ? 0 : tokens - std::min<uint64_t>(tokens, window_ - 1));
  }

 private:
  int created_ = 0;
};

}  // namespace cache_test
