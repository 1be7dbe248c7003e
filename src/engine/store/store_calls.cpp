// Calls the functions of a pkv_store, and pauses after a failure.
#include "engine/store/store_calls.h"

#include <algorithm>
#include <chrono>
#include <climits>

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

}  // namespace

StoreCalls::~StoreCalls() {
  if (!owned_) return;
  HookScope scope;
  store_.close(store_.user);
}

bool StoreCalls::down() const noexcept {
  return now() < down_until_.load(std::memory_order_relaxed);
}

template <class Call>
uint64_t StoreCalls::call(std::span<pkv_store_item> items, const Call& function) noexcept {
  if (items.empty() || down()) return 0;
  int64_t result;
  std::ranges::reverse(items);
  {
    HookScope scope;
    result = function(store_.user, items.size(), items.data());
  }
  std::ranges::reverse(items);
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

uint64_t StoreCalls::put(std::span<pkv_store_item> items) noexcept {
  const uint64_t stored = call(items, store_.put);
  known_.count_puts(stored);
  return stored;
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

void StoreCalls::drop(pkv_store_item item) noexcept { call(std::span(&item, 1), store_.drop); }

}  // namespace pkv::store
