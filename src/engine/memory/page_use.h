// Counts, for one group of those that share a memory, which of its pages could be taken back, so
// that nobody has to look at all of them. Blocks are free, busy, or in use but reclaimable: only
// the prefix index references them, and evicts them when it is asked to. At rest, for each page:
//
//   busy = blocks that are neither free nor reclaimable     (those that are held back are busy)
//   whole pages = pages with busy == 0                      (they belong to the group)
//
// A block is counted busy after it was taken and until before it is free for others, so a page is
// at most counted whole for a moment too long.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include "engine/memory/id_queue.h"

namespace pkv::memory {

class PageUse {
 public:
  // All blocks are free. Throws bad_alloc.
  PageUse(uint32_t pages, uint32_t per_page, const std::pmr::polymorphic_allocator<>& memory)
      : per_page_(per_page),
        busy_(pages, memory),
        reclaimable_(size_t{pages} * per_page, false, memory),
        whole_(pages),
        freed_(pages, memory) {}

  // The pool took a block, is about to free one, and freed those of some bits of a word.
  void take(uint32_t id) noexcept { add_busy(id / per_page_); }
  void free(uint32_t id) noexcept { remove_busy(id / per_page_); }
  void freed(uint32_t word, uint64_t bits) noexcept {
    for (; bits != 0; bits &= bits - 1)
      freed_.add((word * 64 + static_cast<uint32_t>(std::countr_zero(bits))) / per_page_);
  }

  // Sets whether a used block is reclaimable. The lock of the prefix index protects this.
  void set_reclaimable(uint32_t id, bool now) noexcept {
    if (reclaimable_[id] == now) return;
    reclaimable_[id] = now;
    if (now) {
      reclaimable_count_.fetch_add(1, std::memory_order_relaxed);
      remove_busy(id / per_page_);
    } else {
      add_busy(id / per_page_);
      reclaimable_count_.fetch_sub(1, std::memory_order_relaxed);
    }
  }

  uint32_t per_page() const { return per_page_; }
  uint32_t page_of(uint32_t id) const { return id / per_page_; }
  uint32_t busy(uint32_t page) const { return busy_[page].load(std::memory_order_relaxed); }
  bool is_reclaimable(uint32_t id) const { return reclaimable_[id]; }
  uint64_t reclaimable() const { return reclaimable_count_.load(std::memory_order_relaxed); }
  // May be off, and below 0, while other threads take and free blocks.
  int64_t whole() const { return whole_.load(std::memory_order_relaxed); }

  // Pages in which blocks were freed: each that has only free blocks is among them.
  IdQueue& freed_pages() { return freed_; }

 private:
  void add_busy(uint32_t page) noexcept {
    if (busy_[page].fetch_add(1, std::memory_order_relaxed) == 0)
      whole_.fetch_sub(1, std::memory_order_relaxed);
  }
  void remove_busy(uint32_t page) noexcept {
    if (busy_[page].fetch_sub(1, std::memory_order_relaxed) == 1)
      whole_.fetch_add(1, std::memory_order_relaxed);
  }

  const uint32_t per_page_;
  std::pmr::vector<std::atomic<uint32_t>> busy_;  // by page
  std::pmr::vector<bool> reclaimable_;            // by block
  std::atomic<uint64_t> reclaimable_count_{0};
  std::atomic<int64_t> whole_;
  IdQueue freed_;
};

}  // namespace pkv::memory
