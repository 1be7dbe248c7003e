// Remembers a limited number of items, and when each was seen.
#include "engine/store/known_items.h"

#include <cstring>

namespace pkv::store {

namespace {

constexpr size_t max_items = size_t{1} << 20;

// Returns the first bytes of a key. If another key has the same, its item is not written: a miss.
uint64_t prefix_of(const ContentKey& key) {
  uint64_t number;
  std::memcpy(&number, key.data(), sizeof number);
  return number;
}

}  // namespace

bool KnownItems::knows(const ContentKey& key, uint64_t puts, Clock::time_point now) const {
  const std::lock_guard lock(mutex_);
  const auto found = items_.find(prefix_of(key));
  return found != items_.end() && now - found->second.at <= max_age &&
         puts_ - found->second.puts < puts;
}

void KnownItems::remember(const ContentKey& key, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (items_.size() >= max_items) items_.clear();
  items_.insert_or_assign(prefix_of(key), Seen{now, puts_});
}

void KnownItems::forget(const ContentKey& key) {
  const std::lock_guard lock(mutex_);
  items_.erase(prefix_of(key));
}

void KnownItems::count_puts(uint64_t items) {
  const std::lock_guard lock(mutex_);
  puts_ += items;
}

}  // namespace pkv::store
