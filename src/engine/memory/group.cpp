// Makes the bounds of the keys of a group when attention first chooses blocks.
#include "engine/memory/group.h"

namespace pkv::memory {

KeyBounds& Group::make_bounds() {
  if (KeyBounds* const made = bounds()) return *made;
  const std::lock_guard lock(making_bounds_);
  if (!own_bounds_) {
    own_bounds_ =
        std::make_unique<KeyBounds>(layout, shape, block_size, pool.blocks(), memory, huge_pages);
    bounds_.store(own_bounds_.get(), std::memory_order_release);
  }
  return *own_bounds_;
}

}  // namespace pkv::memory
