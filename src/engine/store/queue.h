// The contents that wait to be written to a store. The queue references their blocks, so that
// blocks that were not written yet are evicted last.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/session/content.h"

namespace pkv::store {

class Queue {
 public:
  explicit Queue(uint64_t max_blocks) : max_blocks_(max_blocks) {}

  // Appends a content, or returns false if the queue is stopped or full. For a hint, half full
  // counts as full, so that sessions that end find room. Throws bad_alloc.
  bool push(Content content, Writing why);
  // Counts block positions that were not queued.
  void count_dropped(uint64_t blocks) noexcept;
  // Waits until all is written, or until the given time. Returns how many block positions are not
  // written yet.
  uint64_t flush(std::chrono::steady_clock::time_point until) noexcept;
  // Locks the queue and appends its contents to `releasables`, in order.
  std::unique_lock<std::mutex> lock(std::vector<prefix::Releasable>& releasables);
  // Drops those contents that come at these places in the queue, in ascending order. The caller has
  // the lock.
  void release(std::span<const size_t> places) noexcept;
  // The writer writes what is left and ends.
  void stop() noexcept;

  // For the writer: waits for a content, and returns false if the queue is stopped and empty.
  bool wait() noexcept;
  // Moves the first content to an empty `to`, unless it was released after wait().
  void pop(std::optional<Content>& to) noexcept;
  // Ends the work on what pop() moved. The block positions that were not written are dropped.
  void finish(uint64_t written) noexcept;
  // Waits for a time, but not while a thread is in flush() or after stop().
  void pause(std::chrono::nanoseconds time) noexcept;

  uint64_t taken() const noexcept { return taken_.load(std::memory_order_acquire); }
  uint64_t dropped() const noexcept { return dropped_; }
  uint64_t unwritten() const noexcept;
  // Locks the queue for inspect() and appends its contents.
  std::unique_lock<std::mutex> freeze(std::vector<const Content*>& contents);

 private:
  const uint64_t max_blocks_;
  mutable std::mutex mutex_;
  std::condition_variable changed_, written_;
  std::list<Content> contents_;
  uint64_t queued_ = 0, writing_ = 0;  // block positions
  unsigned flushing_ = 0;              // the number of threads in flush()
  bool stopping_ = false;
  std::atomic<uint64_t> taken_{0};
  Count dropped_;
};

}  // namespace pkv::store
