// A store in memory that can be slow, unreachable, full or corrupt.
#pragma once

#include <pagedkv/store.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "made.h"

namespace cache_test {

class MemoryStore {
 public:
  pkv_store table() {
    pkv_store store = made<pkv_store>();
    store.user = this;
    store.put = [](void* user, size_t n, pkv_store_item* items) { return of(user).put(n, items); };
    store.get = [](void* user, size_t n, pkv_store_item* items) {
      return of(user).get(n, items, true);
    };
    store.touch = [](void* user, size_t n, pkv_store_item* items) {
      return of(user).get(n, items, false);
    };
    store.remove = [](void* user, size_t n, const pkv_store_item* items) {
      return of(user).remove(n, items);
    };
    store.close = [](void* user) { of(user).closed++; };
    return store;
  }

  // While it is held, all calls wait, or only those that get bytes.
  void hold() { set_held(Held::all); }
  void hold_gets() { set_held(Held::gets); }
  void go_on() { set_held(Held::none); }
  // Returns when one of them waits.
  void await_held_call() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ > 0; });
  }

  std::map<std::string, std::vector<unsigned char>> items() const {
    const std::lock_guard lock(mutex_);
    return items_;
  }
  void replace(const std::string& key, std::vector<unsigned char> value) {
    const std::lock_guard lock(mutex_);
    items_[key] = std::move(value);
  }
  // Changes an item: its size, its bytes, or one byte.
  template <class Random>
  void spoil(Random& random) {
    const auto all = items();
    if (all.empty()) return;
    const auto any = [&] {
      return std::next(all.begin(), static_cast<int64_t>(random.below(all.size())));
    };
    auto [key, bytes] = *any();
    switch (random.below(3)) {
      case 0:
        bytes.resize(random.below(bytes.size() + 40));
        break;
      case 1:
        bytes = any()->second;
        break;
      default:
        if (!bytes.empty())
          bytes[random.below(bytes.size())] ^= static_cast<unsigned char>(1 + random.below(255));
    }
    replace(key, std::move(bytes));
  }
  // Takes no item of this name.
  void refuse(const std::string& key) {
    const std::lock_guard lock(mutex_);
    refused_.insert(key);
  }
  void refuse_nothing() {
    const std::lock_guard lock(mutex_);
    refused_.clear();
  }
  void lose(const std::string& key) {
    const std::lock_guard lock(mutex_);
    items_.erase(key);
  }

  std::atomic<int> closed{0}, error{0};  // error: what calls return instead
  // What put does wrong: it does not say which items it refused, or counts them as well.
  std::atomic<bool> keeps_sizes{false}, counts_all{false};
  std::atomic<uint64_t> puts{0}, put_items{0}, gets{0}, touched_items{0}, capacity{UINT64_MAX};

 private:
  enum class Held { none, gets, all };

  static MemoryStore& of(void* user) { return *static_cast<MemoryStore*>(user); }
  static std::string key_of(const pkv_store_item& item) {
    return std::string(reinterpret_cast<const char*>(item.name), sizeof item.name);
  }

  void set_held(Held held) {
    const std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }

  std::unique_lock<std::mutex> enter(bool gets_bytes = false) {
    std::unique_lock lock(mutex_);
    waiting_++;
    changed_.notify_all();
    changed_.wait(lock, [&] { return gets_bytes ? held_ == Held::none : held_ != Held::all; });
    waiting_--;
    return lock;
  }

  int64_t put(size_t n, pkv_store_item* items) {
    puts++;
    put_items += n;
    const auto lock = enter();
    if (error != 0) return -error;
    int64_t stored = 0;
    for (size_t i = 0; i < n; i++) {
      if (items_.size() >= capacity || refused_.contains(key_of(items[i]))) {
        if (!keeps_sizes) items[i].size = 0;
        continue;
      }
      stored++;
      const auto* const bytes = static_cast<const unsigned char*>(items[i].data);
      items_[key_of(items[i])].assign(bytes, bytes + items[i].size);
    }
    return counts_all ? static_cast<int64_t>(n) : stored;
  }

  int64_t get(size_t n, pkv_store_item* items, bool bytes) {
    gets += bytes;
    touched_items += bytes ? 0 : n;
    const auto lock = enter(bytes);
    if (error != 0) return -error;
    int64_t found = 0;
    for (size_t i = 0; i < n; i++) {
      const auto at = items_.find(key_of(items[i]));
      const uint64_t room = items[i].size;
      items[i].size = at == items_.end() ? 0 : at->second.size();
      if (at == items_.end()) continue;
      found++;
      if (bytes)
        std::memcpy(items[i].data, at->second.data(), std::min<uint64_t>(room, at->second.size()));
    }
    return found;
  }

  int64_t remove(size_t n, const pkv_store_item* items) {
    const auto lock = enter();
    int64_t removed = 0;
    for (size_t i = 0; i < n; i++) removed += static_cast<int64_t>(items_.erase(key_of(items[i])));
    return removed;
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Held held_ = Held::none;
  int waiting_ = 0;  // calls that wait while it is held
  std::map<std::string, std::vector<unsigned char>> items_;
  std::set<std::string> refused_;
};

}  // namespace cache_test
