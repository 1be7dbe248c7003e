// A caller's store as the tier calls it.
#pragma once

#include <pagedkv/store.h>

#include <atomic>
#include <span>

namespace pkv::tier {

// A caller's store, with what is counted of it. Leaves one that failed alone for a while.
class StoreCalls {
 public:
  explicit StoreCalls(const pkv_store& store) : store_(store) {}
  ~StoreCalls();  // closes the store, if it is owned
  void own() noexcept { owned_ = true; }
  StoreCalls(const StoreCalls&) = delete;
  StoreCalls& operator=(const StoreCalls&) = delete;

  // How many items; 0 where it is down.
  uint64_t put(std::span<const pkv_store_item> items) noexcept;
  uint64_t get(std::span<pkv_store_item> items) noexcept;
  uint64_t probe(std::span<pkv_store_item> items) noexcept;
  void drop(const pkv_store_item& item) noexcept;
  bool down() const noexcept;
  uint64_t failures() const { return failures_.load(std::memory_order_relaxed); }

 private:
  template <class Items, class Call>
  uint64_t call(Items items, const Call& function) noexcept;
  template <class Call>
  uint64_t look_for(std::span<pkv_store_item> items, const Call& function) noexcept;

  const pkv_store store_;
  bool owned_ = false;
  std::atomic<uint64_t> failures_{0};
  std::atomic<int64_t> down_until_{0}, pause_{0};  // nanoseconds
};

}  // namespace pkv::tier
