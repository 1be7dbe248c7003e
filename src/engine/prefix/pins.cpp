#include "engine/prefix/pins.h"

#include "base/status.h"

namespace pkv::prefix {

namespace {

[[noreturn]] void fail_unpinned(Tokens text) {
  fail(PKV_DOUBLE_FREE, "unpin: no beginning of the %zu tokens is pinned", text.size());
}

}  // namespace

uint32_t Pins::pin(std::string_view salt, Tokens text) {
  Space* const space = data_.spaces.find(salt);
  if (space == nullptr) return 0;
  const Tree::Found found = data_.tree.find(space->root, text);
  const uint32_t depth = matcher_.usable(found);
  if (depth == 0) return 0;
  Node& end = uses_.end_after(found, depth);
  uint64_t more = 0;
  for (const Node* node = &end; node->parent != nullptr; node = node->parent)
    more += node->pinned == 0 ? node->size : 0;
  if (more > max_blocks_ - blocks_)
    fail(PKV_OUT_OF_BLOCKS, "pin needs %llu blocks more, %llu of at most %llu are pinned",
         llu(more), llu(blocks_), llu(max_blocks_));
  if (space->root.pinned == max_pins)
    fail(PKV_REF_LIMIT, "pin: the salt has %u pins, which is the limit", space->root.pinned);
  uses_.attach(end);
  end.pins++;
  for (Node* node = &end; node != nullptr; node = node->parent) {
    node->pinned++;
    data_.blocks.pin(*node);
  }
  blocks_ += more;
  data_.spaces.count(*space, &Figures::pinned, more);
  return depth;
}

uint32_t Pins::unpin(std::string_view salt, Tokens text) {
  Space* const space = data_.spaces.find(salt);
  if (space == nullptr) fail_unpinned(text);
  const Tree::Found found = data_.tree.find(space->root, text);
  Node* end = found.inside < found.node->size ? found.node->parent : found.node;
  while (end != nullptr && end->pins == 0) end = end->parent;
  if (end == nullptr) fail_unpinned(text);
  const uint32_t depth = end->end();
  end->pins--;
  uint64_t fewer = 0;
  for (Node* node = end; node != nullptr; node = node->parent)
    if (--node->pinned == 0) fewer += node->size;
  blocks_ -= fewer;
  data_.spaces.count(*space, &Figures::pinned, uint64_t{0} - fewer);
  uses_.detach(*end, true);
  return depth;
}

}  // namespace pkv::prefix
