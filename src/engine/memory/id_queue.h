// Ids that many threads add, without a lock, and that one thread at a time takes, in the order in
// which they were added. An id is in it at most once, so it never needs memory. It tells a reader
// where to look, instead of everywhere.
//
// The flag of an id is only exchanged, never just read: an add() that finds it set did so before
// the take() that clears it, which therefore sees everything that the adding thread did before.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <optional>
#include <vector>

#include "engine/memory/atomics.h"

namespace pkv::memory {

template <class Atomics = StdAtomics>
class BasicIdQueue {
 public:
  // Throws bad_alloc.
  BasicIdQueue(uint32_t ids, const std::pmr::polymorphic_allocator<>& memory)
      : queued_(ids, memory), next_(ids, none, memory) {}

  void add(uint32_t id) noexcept {
    if (queued_[id].exchange(true, std::memory_order_acq_rel)) return;
    uint32_t head = head_.load(std::memory_order_relaxed);
    do next_[id] = head;
    while (!head_.compare_exchange_weak(head, id, std::memory_order_release,
                                        std::memory_order_relaxed));
  }

  // Removes the id that was added first, and returns it.
  std::optional<uint32_t> take() noexcept {
    if (taken_ == none) take_all();
    if (taken_ == none) return std::nullopt;
    const uint32_t id = taken_;
    taken_ = next_[id];
    queued_[id].exchange(false, std::memory_order_acq_rel);
    return id;
  }

 private:
  static constexpr uint32_t none = ~uint32_t{0};

  // Moves the shared list, which has the last one in front, to the other one in reverse.
  void take_all() noexcept {
    if (head_.load(std::memory_order_relaxed) == none) return;
    for (uint32_t id = head_.exchange(none, std::memory_order_acquire); id != none;) {
      const uint32_t next = next_[id];
      next_[id] = taken_;
      taken_ = id;
      id = next;
    }
  }

  template <class T>
  using atomic = typename Atomics::template atomic<T>;

  std::pmr::vector<atomic<bool>> queued_;
  std::pmr::vector<typename Atomics::template plain<uint32_t>> next_;
  atomic<uint32_t> head_{none};
  uint32_t taken_ = none;  // the first of those that belong to the taking threads alone
};

using IdQueue = BasicIdQueue<>;

}  // namespace pkv::memory
