// The free lists of slots, and how the table grows.
#include "api/slots.h"

#include <algorithm>
#include <memory>

#include "base/status.h"

namespace pkv::api {

namespace {

// The next head of a free list: the index of its first slot, and a tag that changes each time.
uint64_t tagged(uint64_t head, uint32_t index) {
  return ((head >> index_bits) + 1) << index_bits | index;
}

}  // namespace

Slot* SlotTable::take(bool striped) {
  if (Slot* const slot = striped ? pop(free_striped_) : nullptr; slot != nullptr) return slot;
  for (;;) {
    if (Slot* const slot = pop(free_); slot != nullptr) return slot;
    add_chunk();
  }
}

void SlotTable::give_back(Slot* slot) {
  push(slot->stripes.load(std::memory_order_relaxed) != nullptr ? free_striped_ : free_, slot);
}

Slot* SlotTable::pop(std::atomic<uint64_t>& list) {
  uint64_t head = list.load(std::memory_order_acquire);
  while ((head & no_index) != no_index) {
    Slot* const slot = existing(head & no_index);
    // The tag rises with each swap, so a head that was taken and put back meanwhile does not
    // compare equal (the ABA problem).
    const uint64_t next = tagged(head, slot->next.load(std::memory_order_relaxed));
    if (list.compare_exchange_weak(head, next, std::memory_order_acquire)) return slot;
  }
  return nullptr;
}

void SlotTable::push(std::atomic<uint64_t>& list, Slot* slot) {
  uint64_t head = list.load(std::memory_order_relaxed);
  do {
    slot->next.store(static_cast<uint32_t>(head & no_index), std::memory_order_relaxed);
  } while (!list.compare_exchange_weak(head, tagged(head, slot->index), std::memory_order_release,
                                       std::memory_order_relaxed));
}

void SlotTable::add_chunk() {
  const auto empty = [](const std::atomic<Slot*>& chunk) {
    return chunk.load(std::memory_order_relaxed) == nullptr;
  };
  const auto place = std::find_if(chunks_.begin(), chunks_.end(), empty);
  if (place == chunks_.end())
    fail(PKV_LIMIT_REACHED, "%u handles are open, which is the limit", max_chunks * chunk_slots);
  auto slots = std::make_unique<Slot[]>(chunk_slots);
  const uint32_t base = static_cast<uint32_t>(place - chunks_.begin()) * chunk_slots;
  for (uint32_t i = 0; i < chunk_slots; i++) slots[i].index = base + i;
  Slot* before = nullptr;
  if (!place->compare_exchange_strong(before, slots.get(), std::memory_order_acq_rel))
    return;  // another thread added a chunk
  Slot* const added = slots.release();
  for (uint32_t i = chunk_slots; i-- > 0;) give_back(&added[i]);
}

}  // namespace pkv::api
