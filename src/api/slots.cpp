// The free lists of slots, and how the table grows.
#include "api/slots.h"

#include <algorithm>
#include <memory>

#include "base/status.h"

namespace pkv::api {

namespace {

// The next head of a list: the index of its first slot, and a tag that changes each time.
uint64_t tagged(uint64_t head, uint32_t index) {
  return ((head >> index_bits) + 1) << index_bits | index;
}

// Returns whether a slot has a generation left for another handle.
bool can_be_reused(const Slot& slot) {
  return generation_of(slot.word.load(std::memory_order_relaxed)) < state_mask;
}

}  // namespace

Slot* SlotTable::take(bool striped, uint64_t parent) {
  Slot& owner = parent == 0 ? root_ : *existing(parent);
  Slot* slot = striped ? pop(free_striped_, &Slot::next) : nullptr;
  while (slot == nullptr) {
    slot = pop(owner.free, &Slot::next);
    if (slot == nullptr) add_run(owner);
  }
  owner.taken.fetch_add(1, std::memory_order_relaxed);
  slot->taken.store(1, std::memory_order_relaxed);
  slot->parent = parent;
  return slot;
}

void SlotTable::give_back(Slot* slot) {
  // Acquire and release: who finds that no slot is taken has all that were given back before.
  while (slot->taken.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    while (Slot* const run = pop(slot->runs, &Slot::next_run))
      push(free_runs_, &Slot::next_run, run);
    slot->free.store(no_slot, std::memory_order_relaxed);
    Slot& owner = slot->parent == 0 ? root_ : *existing(slot->parent);
    const bool striped = slot->stripes.load(std::memory_order_relaxed) != nullptr;
    if (can_be_reused(*slot)) push(striped ? free_striped_ : owner.free, &Slot::next, slot);
    slot = &owner;
  }
}

Slot* SlotTable::pop(List& list, Link link) {
  uint64_t head = list.load(std::memory_order_acquire);
  while ((head & no_slot) != no_slot) {
    Slot* const slot = existing(head);
    // The tag rises with each swap, so a head that was taken and put back meanwhile does not
    // compare equal (the ABA problem).
    const uint64_t next = tagged(head, (slot->*link).load(std::memory_order_relaxed));
    if (list.compare_exchange_weak(head, next, std::memory_order_acquire)) return slot;
  }
  return nullptr;
}

void SlotTable::push(List& list, Link link, Slot* slot) {
  uint64_t head = list.load(std::memory_order_relaxed);
  do {
    (slot->*link).store(static_cast<uint32_t>(head & no_slot), std::memory_order_relaxed);
  } while (!list.compare_exchange_weak(head, tagged(head, slot->index), std::memory_order_release,
                                       std::memory_order_relaxed));
}

// Gives a slot more slots for children.
void SlotTable::add_run(Slot& parent) {
  Slot* run = pop(free_runs_, &Slot::next_run);
  for (; run == nullptr; run = pop(free_runs_, &Slot::next_run)) add_chunk();
  push(parent.runs, &Slot::next_run, run);
  for (uint32_t i = run_slots; i-- > 0;)
    if (can_be_reused(run[i])) push(parent.free, &Slot::next, &run[i]);
}

void SlotTable::add_chunk() {
  const auto empty = [](const std::atomic<Slot*>& chunk) {
    return chunk.load(std::memory_order_relaxed) == nullptr;
  };
  const auto place = std::find_if(chunks_.begin(), chunks_.end(), empty);
  if (place == chunks_.end())
    fail(PKV_LIMIT_REACHED, "the places of all %u handles are taken, which is the limit",
         max_chunks * chunk_slots);
  auto slots = std::make_unique<Slot[]>(chunk_slots);
  const uint32_t base = static_cast<uint32_t>(place - chunks_.begin()) * chunk_slots;
  for (uint32_t i = 0; i < chunk_slots; i++) slots[i].index = base + i;
  Slot* before = nullptr;
  if (!place->compare_exchange_strong(before, slots.get(), std::memory_order_acq_rel))
    return;  // another thread added a chunk
  Slot* const added = slots.release();
  for (uint32_t i = chunk_slots; i > 0; i -= run_slots)
    push(free_runs_, &Slot::next_run, &added[i - run_slots]);
}

}  // namespace pkv::api
