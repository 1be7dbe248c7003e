// Calls the caller's pkv_store and counts failures. After a failure it does not call the
// store for a while.
#pragma once

#include <pagedkv/store.h>

#include <atomic>
#include <span>

#include "base/count.h"
#include "base/logger.h"
#include "engine/store/known_items.h"

namespace pkv::store {

// After a failure the store is down: calls return 0 at once, for a pause that doubles with each
// failure in a row.
class StoreCalls {
 public:
  // Logs when the store fails and when it works again. The logger must outlive the object.
  StoreCalls(const pkv_store& store, const Logger& logger) : store_(store), logger_(logger) {}
  ~StoreCalls();  // closes the store if it is owned
  // Takes over the store.
  void own() noexcept { owned_ = true; }
  StoreCalls(const StoreCalls&) = delete;
  StoreCalls& operator=(const StoreCalls&) = delete;

  // Items that belong to one text are given in its order. The store gets the last one first: if it
  // deletes what was not used for longest, the ends of texts are deleted before the beginnings that
  // they need. Return how many items the store put or found; 0 if it is down. get and probe set the
  // sizes of the items, to 0 for those that were not found.
  uint64_t put(std::span<pkv_store_item> items) noexcept;
  uint64_t get(std::span<pkv_store_item> items) noexcept;
  uint64_t probe(std::span<pkv_store_item> items) noexcept;
  void drop(pkv_store_item item) noexcept;
  bool down() const noexcept;
  uint64_t failures() const { return failures_; }

  KnownItems& known() { return known_; }

 private:
  template <class Call>
  uint64_t call(std::span<pkv_store_item> items, const Call& function) noexcept;
  template <class Call>
  uint64_t get_or_probe(std::span<pkv_store_item> items, const Call& function) noexcept;

  const pkv_store store_;
  const Logger& logger_;
  bool owned_ = false;
  Count failures_;
  std::atomic<int64_t> down_until_{0}, pause_{0};  // nanoseconds
  KnownItems known_;
};

}  // namespace pkv::store
