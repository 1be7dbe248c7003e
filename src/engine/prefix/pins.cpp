#include "engine/prefix/pins.h"

#include "base/status.h"

namespace pkv::prefix {

namespace {

[[noreturn]] void fail_unpinned(Tokens text) {
  fail(PKV_NOT_HELD, "unpin: no pin of this text ends after %zu tokens", text.size());
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
    fail(PKV_LIMIT_REACHED, "pin needs %llu blocks more, %llu of at most %llu are pinned",
         llu(more), llu(blocks_), llu(max_blocks_));
  if (space->root.pinned == max_pins)
    fail(PKV_LIMIT_REACHED, "pin: the salt has %u pins, which is the limit", space->root.pinned);
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

void Pins::unpin(std::string_view salt, Tokens text) {
  if (text.empty()) return;
  Space* const space = data_.spaces.find(salt);
  if (space == nullptr) fail_unpinned(text);
  const Tree::Found found = data_.tree.find(space->root, text);
  Node& end = *found.node;
  const bool ends =
      found.inside == end.size && uint64_t{end.end()} * data_.block_size() == text.size();
  if (!ends || end.pins == 0) fail_unpinned(text);
  end.pins--;
  uint64_t fewer = 0;
  for (Node* node = &end; node != nullptr; node = node->parent)
    if (--node->pinned == 0) fewer += node->size;
  blocks_ -= fewer;
  data_.spaces.count(*space, &Figures::pinned, uint64_t{0} - fewer);
  uses_.detach(end, true);
}

}  // namespace pkv::prefix
