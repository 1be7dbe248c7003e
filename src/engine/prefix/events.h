// The last events of blocks that were stored and removed, in a ring. Events are numbered, and
// readers go on from the number after the last event they read.
#pragma once

#include <pagedkv/prefix.h>

#include <memory_resource>
#include <span>
#include <vector>

namespace pkv::prefix {

class EventLog {
 public:
  EventLog(uint32_t capacity, std::pmr::memory_resource& memory) : ring_(capacity, &memory) {}

  bool kept() const { return !ring_.empty(); }
  void add(pkv_prefix_event_kind kind, uint64_t position, uint64_t hash, uint64_t parent) noexcept {
    if (!kept()) return;
    ring_[next_ % ring_.size()] = {next_, hash, parent, position, kind, 0};
    next_++;
  }
  // Copies the events from number `next` on, as many as there are and fit, and returns how many.
  // next becomes the number after them; lost: how many events after `next` were overwritten before.
  size_t read(uint64_t& next, std::span<pkv_prefix_event> out, uint64_t& lost) const noexcept;

 private:
  std::pmr::vector<pkv_prefix_event> ring_;
  uint64_t next_ = 0;
};

}  // namespace pkv::prefix
