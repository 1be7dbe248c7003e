// What decides over a policy: pins, which keep texts, and quotas, which bound salts.
#include <limits>

#include "base/status.h"
#include "engine/prefix/index.h"

namespace pkv::prefix {

namespace {

[[noreturn]] void fail_unpinned(Tokens text) {
  fail(PKV_DOUBLE_FREE, "unpin: no beginning of the %zu tokens is pinned", text.size());
}

}  // namespace

// A pin is a use of a path that no session has.
uint32_t Index::pin(std::string_view salt, Tokens text) {
  const std::lock_guard lock(mutex_);
  const auto known = spaces_.find(salt);
  if (known == spaces_.end()) return 0;
  Space& space = known->second;
  const Tree::Match found = tree_.find(space.root, text);
  const uint32_t depth = usable_of(found);
  if (depth == 0) return 0;
  Node& end = end_after(found, depth);
  uint64_t more = 0;
  for (const Node* node = &end; node->parent != nullptr; node = node->parent)
    more += node->pinned == 0 ? node->size : 0;
  if (more > most_pinned_ - pinned_)
    fail(PKV_OUT_OF_BLOCKS, "pin needs %llu blocks more, %llu of at most %llu are pinned",
         (unsigned long long)more, (unsigned long long)pinned_, (unsigned long long)most_pinned_);
  if (space.root.pinned == std::numeric_limits<uint32_t>::max())
    fail(PKV_REF_LIMIT, "pin: the salt has %u pins, which is the limit", space.root.pinned);
  attach(end);
  end.pins++;
  for (Node* node = &end; node != nullptr; node = node->parent) node->pinned++;
  pinned_ += more;
  space.figures.pinned += more;
  return depth;
}

uint32_t Index::unpin(std::string_view salt, Tokens text) {
  const std::lock_guard lock(mutex_);
  const auto known = spaces_.find(salt);
  if (known == spaces_.end()) fail_unpinned(text);
  Space& space = known->second;
  const Tree::Match found = tree_.find(space.root, text);
  Node* end = found.inside < found.node->size ? found.node->parent : found.node;
  while (end != nullptr && end->pins == 0) end = end->parent;
  if (end == nullptr) fail_unpinned(text);
  const uint32_t depth = end->end();
  end->pins--;
  uint64_t fewer = 0;
  for (Node* node = end; node != nullptr; node = node->parent)
    if (--node->pinned == 0) fewer += node->size;
  pinned_ -= fewer;
  space.figures.pinned -= fewer;
  detach(*end, true);
  return depth;
}

void Index::set_quota(std::string_view salt, std::optional<uint64_t> blocks) {
  const std::lock_guard lock(mutex_);
  Space& space = this->space(salt);
  const uint64_t quota = blocks.value_or(quota_);
  if (quota != 0 && space.quota == 0) {
    try {
      space.own.reserve(space.nodes + 1);
    } catch (...) {
      drop_if_empty(space);
      throw;
    }
    for (const std::span<Node* const> candidates : policy_->candidates())
      for (Node* const node : candidates)
        if (node->owner == &space) space.own.add(*node);
  } else if (quota == 0) {
    space.own.clear();
  }
  space.quota = quota;
  space.own_quota = blocks.has_value();
  room_in_quota(space, 0);
  drop_if_empty(space);
}

}  // namespace pkv::prefix
