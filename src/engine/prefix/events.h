// A ring of the last events of stored and removed blocks. Events are numbered; a reader continues
// with the number after the last event it read. Each log begins at a random multiple of 2^40, so
// that a reader of another cache is noticed.
#pragma once

#include <pagedkv/prefix.h>

#include <algorithm>
#include <memory_resource>
#include <span>
#include <vector>

#include "base/status.h"

namespace pkv::prefix {

class EventLog {
 public:
  EventLog(uint32_t capacity, uint64_t random, std::pmr::memory_resource& memory)
      : first_(random >> 41 << 40), ring_(capacity, &memory) {}

  bool kept() const { return !ring_.empty(); }
  void add(pkv_prefix_event_kind kind, uint64_t position, uint64_t hash, uint64_t parent) noexcept {
    if (!kept()) return;
    ring_[next_ % ring_.size()] = {next_, hash, parent, position, kind, 0};
    next_++;
  }
  // Copies events from number `next` on (0: from the first), as many as exist and fit, and returns
  // how many. Sets next to the number after them, and lost to how many events from `next` on had
  // been overwritten. Throws OUT_OF_RANGE if this log has not reached `next`, or is another.
  size_t read(uint64_t& next, std::span<pkv_prefix_event> out, uint64_t& lost) const {
    const uint64_t asked = next == 0 ? first_ : next;
    if (asked < first_ || asked > next_)
      fail(PKV_OUT_OF_RANGE, "next is %llu; the events of this cache are %llu to %llu", llu(asked),
           llu(first_), llu(next_));
    const uint64_t oldest = next_ - std::min<uint64_t>(next_ - first_, ring_.size());
    lost = asked < oldest ? oldest - asked : 0;
    const uint64_t from = asked + lost;
    const size_t count = static_cast<size_t>(std::min<uint64_t>(next_ - from, out.size()));
    for (size_t i = 0; i < count; i++) out[i] = ring_[(from + i) % ring_.size()];
    next = from + count;
    return count;
  }

 private:
  const uint64_t first_;  // the number of the first event
  std::pmr::vector<pkv_prefix_event> ring_;
  uint64_t next_ = first_;
};

}  // namespace pkv::prefix
