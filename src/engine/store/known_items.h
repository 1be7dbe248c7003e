// Which items a store has, as far as a cache knows. An item that the cache put, or asked for, is
// known for a while only. Then the cache asks again: for the store this is a use, and so what is
// found in the cache's memory again and again does not leave the store; and another process may
// have deleted the item meanwhile.
#pragma once

#include <chrono>
#include <mutex>
#include <unordered_map>

#include "engine/store/block_keys.h"

namespace pkv::store {

class KnownItems {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::minutes max_age{2};

  // Returns whether an item was seen at most max_age ago, and fewer than `puts` items have been put
  // since. Without that limit, a store that fills up within max_age would delete what is in use.
  bool knows(const ContentKey& key, uint64_t puts, Clock::time_point now = Clock::now()) const;
  // Any item may be forgotten; that costs one more question to the store.
  void remember(const ContentKey& key, Clock::time_point now = Clock::now());
  void forget(const ContentKey& key);
  void count_puts(uint64_t items);

 private:
  struct Seen {
    Clock::time_point at;
    uint64_t puts;  // how many there had been before
  };
  mutable std::mutex mutex_;                  // while it is locked, nothing else is
  std::unordered_map<uint64_t, Seen> items_;  // by the first bytes of their keys
  uint64_t puts_ = 0;
};

}  // namespace pkv::store
