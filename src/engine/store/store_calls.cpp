// Calls the functions of a pkv_store, pauses after a failure, and remembers keys.
#include "engine/store/store_calls.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstring>

#include "base/memory.h"
#include "base/status.h"

namespace pkv::store {

namespace {

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

constexpr int64_t min_pause = 100'000'000, max_pause = 10'000'000'000;  // nanoseconds
constexpr size_t max_keys = size_t{1} << 20;

// Returns the first bytes of a key. If another key has the same, its item is not written: a miss.
uint64_t key_prefix(const ContentKey& key) {
  uint64_t number;
  std::memcpy(&number, key.data(), sizeof number);
  return number;
}

}  // namespace

StoreCalls::~StoreCalls() {
  if (!owned_) return;
  HookScope scope;
  store_.close(store_.user);
}

bool StoreCalls::down() const noexcept {
  return now() < down_until_.load(std::memory_order_relaxed);
}

template <class Items, class Call>
uint64_t StoreCalls::call(Items items, const Call& function) noexcept {
  if (items.empty() || down()) return 0;
  int64_t result;
  {
    HookScope scope;
    result = function(store_.user, items.size(), items.data());
  }
  if (result >= 0) {
    if (pause_.load(std::memory_order_relaxed) != 0 &&
        pause_.exchange(0, std::memory_order_relaxed) != 0)
      logger_.log(PKV_LOG_INFO, "the store works again; %llu calls have failed so far",
                  llu(failures()));
    return std::min<uint64_t>(static_cast<uint64_t>(result), items.size());
  }
  failures_ += 1;
  const int64_t pause =
      std::clamp(2 * pause_.load(std::memory_order_relaxed), min_pause, max_pause);
  down_until_.store(now() + pause, std::memory_order_relaxed);
  if (pause_.exchange(pause, std::memory_order_relaxed) == 0) {
    const int error = static_cast<int>(-std::max<int64_t>(result, -INT_MAX));
    logger_.log(PKV_LOG_WARNING,
                "the store failed: %s (errno %d); it gets no calls for 0.1 s, and up to 10 s while "
                "it fails",
                errno_text(error), error);
  }
  return 0;
}

uint64_t StoreCalls::put(std::span<const pkv_store_item> items) noexcept {
  return call(items, store_.put);
}

// Sets every size to 0 if the store has none of the items or is down.
template <class Call>
uint64_t StoreCalls::get_or_probe(std::span<pkv_store_item> items, const Call& function) noexcept {
  const uint64_t found = call(items, function);
  for (size_t i = 0; found == 0 && i < items.size(); i++) items[i].size = 0;
  return found;
}

uint64_t StoreCalls::get(std::span<pkv_store_item> items) noexcept {
  return get_or_probe(items, store_.get);
}

uint64_t StoreCalls::probe(std::span<pkv_store_item> items) noexcept {
  return get_or_probe(items, store_.probe);
}

void StoreCalls::drop(const pkv_store_item& item) noexcept {
  call(std::span(&item, 1), store_.drop);
}

bool StoreCalls::knows(const ContentKey& key) const {
  const std::lock_guard lock(keys_mutex_);
  return keys_.contains(key_prefix(key));
}

void StoreCalls::remember(const ContentKey& key) {
  const std::lock_guard lock(keys_mutex_);
  if (keys_.size() >= max_keys) keys_.clear();
  keys_.insert(key_prefix(key));
}

void StoreCalls::forget(const ContentKey& key) {
  const std::lock_guard lock(keys_mutex_);
  keys_.erase(key_prefix(key));
}

}  // namespace pkv::store
