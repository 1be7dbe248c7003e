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

// Returns how many items the store's function counted; a negative number if it made no call, in a
// pause, or if that failed. It is also a failure if the store counted fewer items than `expected`
// returns after the call; after a put that stored nothing, it pauses.
template <class Call, class Expected>
int64_t StoreCalls::call(CallState& state, std::span<pkv_store_item> items, const Call& function,
                         const Expected& expected) noexcept {
  if (items.empty() || state.pauses()) return -1;
  int64_t result;
  std::ranges::reverse(items);
  {
    HookScope scope;
    result = function(store_.user, items.size(), items.data());
  }
  std::ranges::reverse(items);
  const auto counted = std::min<int64_t>(result, static_cast<int64_t>(items.size()));
  const int64_t wanted = result < 0 ? 0 : expected();
  const bool failed = result < 0 || (counted == 0 && wanted > 0 && &state == &writing_);
  if (failed || counted < wanted) {
    failures_ += 1;
    if (failed ? state.failed() : state.failed_in_part()) log_failure(state, result, wanted);
  } else if (state.succeeded()) {
    logger_.log(PKV_LOG_INFO, "the store works again: %ss; %llu calls have failed so far",
                state.verb(), llu(failures()));
  }
  return counted;
}

// Called by the thread whose call failed, at once.
void StoreCalls::log_failure(const CallState& state, int64_t result,
                             int64_t wanted) const noexcept {
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
      std::snprintf(text, sizeof text, "it took %llu of %llu items", llu(result), llu(wanted));
    reason = text;
  }
  logger_.log(PKV_LOG_WARNING, "the store failed to %s: %.180s; %llu calls have failed so far",
              state.verb(), reason, llu(failures()));
}

namespace {

int64_t none() { return 0; }

// How many items a store says that it has, or has stored.
int64_t count_found(std::span<const pkv_store_item> items) {
  return std::ranges::count_if(items, [](const pkv_store_item& item) { return item.size != 0; });
}

void forget_sizes(std::span<pkv_store_item> items) {
  for (pkv_store_item& item : items) item.size = 0;
}

}  // namespace

void StoreCalls::put(std::span<pkv_store_item> items) noexcept {
  const auto put = [&](void* user, size_t n, pkv_store_item* first) {
    const int64_t result = store_.put(user, n, first);
    if (result < count_found(items)) forget_sizes(items);
    return std::min(result, count_found(items));
  };
  const auto all = [&] { return static_cast<int64_t>(items.size()); };
  if (call(writing_, items, put, all) < 0) forget_sizes(items);
  known_.count_puts(static_cast<uint64_t>(count_found(items)));
}

uint64_t StoreCalls::get(std::span<pkv_store_item> items) noexcept {
  const int64_t found = call(reading_, items, store_.get, none);
  if (found <= 0) forget_sizes(items);
  return static_cast<uint64_t>(std::max<int64_t>(found, 0));
}

void StoreCalls::touch(std::span<pkv_store_item> items) noexcept {
  forget_sizes(items);
  if (call(reading_, items, store_.touch, [&] { return count_found(items); }) < 0)
    forget_sizes(items);
}

void StoreCalls::remove(pkv_store_item item) noexcept {
  call(removing_, std::span(&item, 1), store_.remove, none);
}

}  // namespace pkv::store
