// A store under test, and batches of items whose bytes depend on their names.
#pragma once

#include <gtest/gtest.h>
#include <pagedkv/redis.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "../support/made.h"
#include "servers.h"

namespace redis_test {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Returns bytes of all values that differ from seed to seed.
inline std::string bytes(size_t size, uint64_t seed) {
  std::string text(size, '\0');
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (char& byte : text) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    byte = static_cast<char>(state >> 32);
  }
  return text;
}

inline std::string name(uint64_t seed) { return bytes(sizeof pkv_store_item::name, ~seed); }

// Items with their memory. The room of each item is followed by guard bytes.
class Batch {
 public:
  Batch& add(const std::string& key, std::string memory) {
    pkv_store_item item{};
    std::memcpy(item.name, key.data(), sizeof item.name);
    item.size = memory.size();
    items_.push_back(item);
    memory_.push_back(std::move(memory) + guard);
    return *this;
  }
  Batch& add(uint64_t seed, size_t size) { return add(name(seed), bytes(size, seed)); }
  Batch& room(uint64_t seed, size_t size) { return add(name(seed), std::string(size, '?')); }

  size_t size() const { return items_.size(); }
  pkv_store_item* items() {
    for (size_t i = 0; i < size(); i++) {
      items_[i].data = memory_[i].data();
      items_[i].size = memory_[i].size() - guard.size();
    }
    return items_.data();
  }
  uint64_t size_of(size_t i) const { return items_[i].size; }
  std::string value(size_t i) const {
    return memory_[i].substr(0, std::min<size_t>(items_[i].size, memory_[i].size() - guard.size()));
  }
  bool untouched(size_t i) const { return memory_[i].ends_with(guard); }

 private:
  inline static const std::string guard = "untouched after the end";
  std::vector<pkv_store_item> items_;
  std::vector<std::string> memory_;
};

inline pkv_redis_config config_for(const std::string& servers) {
  auto config = made<pkv_redis_config>({.servers = servers.c_str()});
  config.connect_timeout_ms = config.command_timeout_ms =
      std::chrono::milliseconds(hang_limit).count();
  return config;
}

// Sets short time-outs, for servers that do not answer. On a slow machine any call may then end in
// a time-out, also one that opens a store: a test has to allow for it.
inline void hasty(pkv_redis_config& config) {
  config.connect_timeout_ms = config.command_timeout_ms = 400;
}
inline void hasty_later(pkv_redis_config& config) {
  hasty(config);
  config.connect_later = 1;
}

class Store {
 public:
  explicit Store(
      const std::string& servers,
      const std::function<void(pkv_redis_config&)>& adjust = [](pkv_redis_config&) {}) {
    pkv_redis_config config = config_for(servers);
    adjust(config);
    status = pkv_redis_open(&config, &store_);
    EXPECT_EQ(status, PKV_OK) << pkv_redis_last_error();
    EXPECT_EQ(store_.struct_size, sizeof store_);
  }
  ~Store() {
    if (status == PKV_OK) pkv_store_close(&store_);
  }
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  int64_t put(Batch& batch) { return store_.put(store_.user, batch.size(), batch.items()); }
  int64_t get(Batch& batch) { return store_.get(store_.user, batch.size(), batch.items()); }
  int64_t touch(Batch& batch) { return store_.touch(store_.user, batch.size(), batch.items()); }
  int64_t remove(Batch& batch) { return store_.remove(store_.user, batch.size(), batch.items()); }

  int64_t put(uint64_t seed, size_t size) {
    Batch batch;
    return put(batch.add(seed, size));
  }
  // Returns 1 if the item is there with the right bytes, and otherwise what get() returned, once it
  // is certain that nothing was written.
  int64_t get(uint64_t seed, size_t size) {
    Batch batch;
    const int64_t found = get(batch.room(seed, size));
    EXPECT_TRUE(batch.untouched(0));
    EXPECT_EQ(batch.size_of(0), found == 1 ? size : 0);
    if (found == 1) {
      EXPECT_TRUE(batch.value(0) == bytes(size, seed)) << "wrong bytes for " << seed;
    }
    return found;
  }

  std::string last_error() const { return store_.last_error(store_.user); }

  pkv_status status = PKV_INTERNAL;

 private:
  pkv_store store_ = made<pkv_store>();
};

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Repeats something until it is true. The pauses between connections end after 10 s at the latest.
template <class Condition>
bool eventually(const Condition& condition) {
  for (const auto end = Clock::now() + hang_limit; Clock::now() < end;
       std::this_thread::sleep_for(10ms))
    if (condition()) return true;
  return false;
}

class WithServers : public testing::Test {
 protected:
  void SetUp() override {
    if (!have_server()) GTEST_SKIP() << "neither redis-server nor valkey-server is installed";
  }
};

}  // namespace redis_test
