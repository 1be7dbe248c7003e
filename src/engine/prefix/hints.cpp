#include "engine/prefix/hints.h"

#include <algorithm>
#include <unordered_set>

namespace pkv::prefix {

PinResult Hints::pin(std::string_view salt, Tokens text, uint64_t duration_ms) {
  PinResult result;
  Space* const space = data_.spaces.find(salt);
  if (space == nullptr) return result;
  Tree::Found found = data_.tree.find(space->root, text);
  const uint32_t depth = result.cached = matcher_.usable(found);
  result.pinned = clip(*space, found, result);
  if (result.pinned < depth) {
    found = data_.tree.find(space->root, text.first(size_t{result.pinned} * data_.block_size()));
    result.pinned = matcher_.usable(found);
  }
  if (result.pinned > 0)
    begin(uses_.end_after(found, result.pinned),
          static_cast<uint32_t>(text.size() / data_.block_size()), data_.time.in_ms(duration_ms));
  return result;
}

// Returns how many blocks of a text can be pinned. A salt with a quota may pin half of it, so that
// its sessions still have something cached.
uint32_t Hints::clip(const Space& space, const Tree::Found& found, PinResult& result) const {
  uint32_t pinned = 0;  // of the path, which is pinned from its beginning on
  for (const Node* node = found.node; node != nullptr && pinned == 0; node = node->parent)
    if (node->pinned > 0) pinned = std::min(node->end(), result.cached);
  const auto left = [](uint64_t limit, uint64_t used) { return limit - std::min(limit, used); };
  const uint64_t room = left(max_pinned_, pinned_),
                 own_room = space.quota == 0 ? room : left(space.quota / 2, space.figures.pinned);
  result.quota_reached = own_room < room;
  return static_cast<uint32_t>(
      pinned + std::min<uint64_t>(result.cached - pinned, std::min(room, own_room)));
}

// A pin keeps all blocks of its text in a full group, and in a sparse one those that a match needs
// at the end of one of its nodes.
std::vector<uint64_t> Hints::pinned_blocks() const {
  std::vector<uint64_t> result(data_.groups.size(), pinned_);
  for (size_t g = 0; g < result.size(); g++)
    if (data_.blocks.sparse(g)) result[g] = 0;
  if (std::find(result.begin(), result.end(), 0) == result.end()) return result;
  std::unordered_set<const Node*> counted;
  for (const auto& [time, end] : data_.pins)
    for (const Node* node = end; node->parent != nullptr && counted.insert(node).second;
         node = node->parent)
      data_.blocks.for_each_edge(*node, [&](size_t group, uint32_t) { result[group]++; });
  return result;
}

// Throws bad_alloc; then nothing has changed.
void Hints::begin(Node& end, uint32_t asked, uint64_t until) {
  if (end.pinned_until != 0) {  // the later end wins
    end.pin_asked = std::max(end.pin_asked, asked);
    if (until <= end.pinned_until) return;
    auto entry = data_.pins.extract({end.pinned_until, &end});
    entry.value().first = end.pinned_until = until;
    data_.pins.insert(std::move(entry));
    return;
  }
  data_.pins.emplace(until, &end);
  end.pinned_until = until;
  end.pin_asked = asked;
  uses_.attach(end);
  uint64_t more = 0;
  for (Node* node = &end; node != nullptr; node = node->parent) {
    if (node->pinned++ == 0) more += node->size;
    data_.blocks.pin(*node);
  }
  pinned_ += more;
  data_.spaces.count(space_of(end), &Figures::pinned, more);
}

void Hints::end(Node& end) noexcept {
  data_.pins.erase({std::exchange(end.pinned_until, 0), &end});
  uint64_t fewer = 0;
  for (Node* node = &end; node != nullptr; node = node->parent)
    if (--node->pinned == 0) {
      fewer += node->size;
      data_.blocks.unpin(*node);
    }
  pinned_ -= fewer;
  data_.spaces.count(space_of(end), &Figures::pinned, uint64_t{0} - fewer);
  uses_.detach(end, true);
}

// Ends the last pin on the path of a text that was asked for up to the end of the text or beyond:
// the pin ends there or, if it was clipped, before.
uint32_t Hints::unpin(std::string_view salt, Tokens text) noexcept {
  Space* const space = data_.spaces.find(salt);
  if (space == nullptr) return 0;
  const Tree::Found found = data_.tree.find(space->root, text);
  for (Node* node = found.node; node->parent != nullptr; node = node->parent) {
    const bool asked = uint64_t{node->pin_asked} * data_.block_size() >= text.size();
    if (node->end() > found.whole || node->pinned_until == 0 || !asked) continue;
    const uint32_t pinned = node->end();
    end(*node);
    return pinned;
  }
  return 0;
}

void Hints::yield(Node& node) noexcept {
  data_.spaces.count(space_of(node), &Figures::yielded, 1);
  end(node);
}

uint32_t Hints::set_retention(std::string_view salt, Tokens text, const Range& range) {
  Space* const space = data_.spaces.find(salt);
  if (space == nullptr) return 0;
  const auto end_of = [&](uint32_t blocks) -> Node& {
    const Tokens part = text.first(std::min(text.size(), size_t{blocks} * data_.block_size()));
    const Tree::Found found = data_.tree.find(space->root, part);
    return uses_.end_after(found, found.whole);
  };
  const Node& above = end_of(range.first);  // splits first, because `end` may be below it
  Node& end = end_of(range.last);
  if (end.end() <= range.first) return end.end();
  const uint64_t until = data_.time.in_ms(range.duration_ms);
  for (Node* node = &end; node != &above; node = node->parent)
    if (range.duration_ms != 0)
      data_.retain_until(*node, range.retention, until);
    else
      data_.set_retention(*node, range.retention);
  return end.end();
}

void Hints::expire(uint64_t now) noexcept {
  const auto over = [&](const Deadlines& deadlines) {
    return !deadlines.empty() && deadlines.begin()->first <= now;
  };
  while (over(data_.retained)) data_.end_retention(*data_.retained.begin()->second);
  while (over(data_.pins)) end(*data_.pins.begin()->second);
}

}  // namespace pkv::prefix
