// Calls the caller's pkv_store, and counts and logs failures. After a failure it makes no calls of
// that kind for a while.
#pragma once

#include <pagedkv/store.h>

#include <atomic>
#include <span>

#include "base/count.h"
#include "base/logger.h"
#include "engine/store/known_items.h"

namespace pkv::store {

// Whether calls of one kind fail at present: those that read, that write or that delete. A full
// disk or a read-only server can still be read. After a failure there is a pause, in which calls
// return 0 at once; it doubles with each failure in a row.
class CallState {
 public:
  explicit CallState(const char* verb) : verb_(verb) {}
  bool pauses() const noexcept;
  // Each returns true if this must be logged: a failure at most once a minute, and the end of
  // failures only after one was.
  bool failed() noexcept;
  bool failed_in_part() noexcept { return log_interval_.begin() && (told_ = true); }
  bool succeeded() noexcept;
  const char* verb() const { return verb_; }

 private:
  const char* const verb_;
  LogInterval log_interval_{std::chrono::minutes(1)};
  std::atomic<int64_t> paused_until_{0}, pause_{0};  // nanoseconds
  std::atomic<bool> told_{false};
};

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
  // they need. The sizes of items that were not stored or not found become 0: all in a pause. get
  // returns how many the store found.
  void put(std::span<pkv_store_item> items) noexcept;
  uint64_t get(std::span<pkv_store_item> items) noexcept;
  void touch(std::span<pkv_store_item> items) noexcept;
  void remove(pkv_store_item item) noexcept;
  const CallState& reading() const { return reading_; }
  const CallState& writing() const { return writing_; }
  uint64_t failures() const { return failures_; }

  KnownItems& known() { return known_; }

 private:
  template <class Call, class Expected>
  int64_t call(CallState& state, std::span<pkv_store_item> items, const Call& function,
               const Expected& expected) noexcept;
  void log_failure(const CallState& state, int64_t result, int64_t wanted) const noexcept;

  const pkv_store store_;
  const Logger& logger_;
  bool owned_ = false;
  Count failures_;
  CallState reading_{"read"}, writing_{"write"}, removing_{"delete"};
  KnownItems known_;
};

}  // namespace pkv::store
