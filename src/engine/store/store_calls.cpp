// Calls the functions of a pkv_store, and pauses after a failure.
#include "engine/store/store_calls.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdio>

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

bool CallState::pauses() const noexcept {
  return now() < paused_until_.load(std::memory_order_relaxed);
}

bool CallState::failed() noexcept {
  const int64_t pause =
      std::clamp(2 * pause_.load(std::memory_order_relaxed), min_pause, max_pause);
  pause_.store(pause, std::memory_order_relaxed);
  paused_until_.store(now() + pause, std::memory_order_relaxed);
  return failed_in_part();
}

bool CallState::succeeded() noexcept {
  if (pause_.load(std::memory_order_relaxed) != 0) pause_.store(0, std::memory_order_relaxed);
  return told_.load(std::memory_order_relaxed) && told_.exchange(false);
}

// Returns how many items the store's function counted; 0 in a pause. Fewer than `expected` are a
// failure, after which it pauses if there were none.
template <class Call>
uint64_t StoreCalls::call(CallState& state, std::span<pkv_store_item> items, const Call& function,
                          size_t expected) noexcept {
  if (items.empty() || state.pauses()) return 0;
  int64_t result;
  std::ranges::reverse(items);
  {
    HookScope scope;
    result = function(store_.user, items.size(), items.data());
  }
  std::ranges::reverse(items);
  const uint64_t counted = result < 0 ? 0 : std::min<uint64_t>(result, items.size());
  const bool failed = result < 0 || (counted == 0 && expected > 0);
  if (failed || counted < expected) {
    failures_ += 1;
    if (failed ? state.failed() : state.failed_in_part()) log_failure(state, result, items.size());
  } else if (state.succeeded()) {
    logger_.log(PKV_LOG_INFO, "the store works again: %ss; %llu calls have failed so far",
                state.verb(), llu(failures()));
  }
  return counted;
}

// Called by the thread whose call failed, at once.
void StoreCalls::log_failure(const CallState& state, int64_t result, size_t items) const noexcept {
  if (!logger_.listens()) return;
  const char* reason = nullptr;
  if (store_.last_error != nullptr) {
    HookScope scope;
    reason = store_.last_error(store_.user);
  }
  char text[100];
  if (reason == nullptr || reason[0] == '\0') {
    const int error = static_cast<int>(-std::max<int64_t>(result, -INT_MAX));
    if (result < 0)
      std::snprintf(text, sizeof text, "%s (errno %d)", errno_text(error), error);
    else
      std::snprintf(text, sizeof text, "it took %llu of %zu items", llu(result), items);
    reason = text;
  }
  logger_.log(PKV_LOG_WARNING, "the store failed to %s: %.180s; %llu calls have failed so far",
              state.verb(), reason, llu(failures()));
}

uint64_t StoreCalls::put(std::span<pkv_store_item> items) noexcept {
  const uint64_t stored = call(writing_, items, store_.put, items.size());
  known_.count_puts(stored);
  return stored;
}

// Sets every size to 0 if the store has none of the items or reads pause.
template <class Call>
uint64_t StoreCalls::get_or_probe(std::span<pkv_store_item> items, const Call& function) noexcept {
  const uint64_t found = call(reading_, items, function, 0);
  for (size_t i = 0; found == 0 && i < items.size(); i++) items[i].size = 0;
  return found;
}

uint64_t StoreCalls::get(std::span<pkv_store_item> items) noexcept {
  return get_or_probe(items, store_.get);
}

uint64_t StoreCalls::probe(std::span<pkv_store_item> items) noexcept {
  return get_or_probe(items, store_.probe);
}

void StoreCalls::drop(pkv_store_item item) noexcept {
  call(dropping_, std::span(&item, 1), store_.drop, 0);
}

}  // namespace pkv::store
