#include "engine/prefix/events.h"

#include <algorithm>

namespace pkv::prefix {

size_t EventLog::read(uint64_t& next, std::span<pkv_prefix_event> out,
                      uint64_t& lost) const noexcept {
  const uint64_t oldest = next_ - std::min<uint64_t>(next_, ring_.size());
  lost = next < oldest ? oldest - next : 0;
  const uint64_t from = std::min(next + lost, next_);
  const size_t count = static_cast<size_t>(std::min<uint64_t>(next_ - from, out.size()));
  for (size_t i = 0; i < count; i++) out[i] = ring_[(from + i) % ring_.size()];
  next = from + count;
  return count;
}

}  // namespace pkv::prefix
