// Adds, takes and releases the spare blocks of a sequence.
#include "engine/memory/spares.h"

#include <cassert>

namespace pkv::memory {

void Spares::add(std::span<const Block> fresh, uint64_t end) noexcept {
  append(blocks_, fresh);
  reserved_to_ = std::max(reserved_to_, end);
}

void Spares::keep(size_t count) noexcept {
  while (blocks_.size() > count) {
    put(blocks_.back(), 0);
    blocks_.pop_back();
  }
  if (count == 0) reserved_to_ = 0;
}

Block Spares::take(std::span<const Block>& fresh) noexcept {
  if (!blocks_.empty()) {
    const Block block = blocks_.back();
    blocks_.pop_back();
    return block;
  }
  const Block block = fresh.front();
  fresh = fresh.subspan(1);
  return block;
}

void Spares::put(Block block, size_t limit) noexcept {
  if (blocks_.size() < limit && pool_.set_filled(block, 0)) {
    blocks_.push_back(block);
    return;
  }
  [[maybe_unused]] const pkv_status status = pool_.release(block);
  assert(status == PKV_OK);
}

}  // namespace pkv::memory
