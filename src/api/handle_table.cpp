// The free lists of entries, and how the table grows.
#include "api/handle_table.h"

#include <algorithm>
#include <memory>

#include "base/status.h"

namespace pkv::api {

namespace {

// The next head of a list: the index of its first entry, and a tag that changes each time.
uint64_t tagged(uint64_t head, uint32_t index) {
  return ((head >> index_bits) + 1) << index_bits | index;
}

// Returns whether an entry has a generation left for another handle.
bool can_be_reused(const HandleEntry& entry) {
  return generation_of(entry.word.load(std::memory_order_relaxed)) < state_mask;
}

}  // namespace

HandleEntry* HandleTable::take(bool striped, uint64_t parent) {
  HandleEntry& owner = parent == 0 ? root_ : *existing(parent);
  HandleEntry* entry = striped ? pop(free_striped_, &HandleEntry::next) : nullptr;
  while (entry == nullptr) {
    entry = pop(owner.free, &HandleEntry::next);
    if (entry == nullptr) add_run(owner);
  }
  owner.taken.fetch_add(1, std::memory_order_relaxed);
  entry->taken.store(1, std::memory_order_relaxed);
  entry->parent = parent;
  return entry;
}

void HandleTable::give_back(HandleEntry* entry) {
  // Acquire and release: the thread that takes the count to 0 sees all entries given back before.
  while (entry->taken.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    while (HandleEntry* const run = pop(entry->runs, &HandleEntry::next_run))
      push(free_runs_, &HandleEntry::next_run, run);
    entry->free.store(no_entry, std::memory_order_relaxed);
    HandleEntry& owner = entry->parent == 0 ? root_ : *existing(entry->parent);
    const bool striped = entry->stripes.load(std::memory_order_relaxed) != nullptr;
    if (can_be_reused(*entry))
      push(striped ? free_striped_ : owner.free, &HandleEntry::next, entry);
    entry = &owner;
  }
}

HandleEntry* HandleTable::pop(List& list, Link link) {
  uint64_t head = list.load(std::memory_order_acquire);
  while ((head & no_entry) != no_entry) {
    HandleEntry* const entry = existing(head);
    // The tag rises with each swap, so a head that was taken and put back meanwhile does not
    // compare equal (the ABA problem).
    const uint64_t next = tagged(head, (entry->*link).load(std::memory_order_relaxed));
    if (list.compare_exchange_weak(head, next, std::memory_order_acquire)) return entry;
  }
  return nullptr;
}

void HandleTable::push(List& list, Link link, HandleEntry* entry) {
  uint64_t head = list.load(std::memory_order_relaxed);
  do {
    (entry->*link).store(static_cast<uint32_t>(head & no_entry), std::memory_order_relaxed);
  } while (!list.compare_exchange_weak(head, tagged(head, entry->index), std::memory_order_release,
                                       std::memory_order_relaxed));
}

// Gives an entry more entries for children.
void HandleTable::add_run(HandleEntry& parent) {
  HandleEntry* run = pop(free_runs_, &HandleEntry::next_run);
  for (; run == nullptr; run = pop(free_runs_, &HandleEntry::next_run)) add_chunk();
  push(parent.runs, &HandleEntry::next_run, run);
  for (uint32_t i = run_entries; i-- > 0;)
    if (can_be_reused(run[i])) push(parent.free, &HandleEntry::next, &run[i]);
}

void HandleTable::add_chunk() {
  const auto empty = [](const std::atomic<HandleEntry*>& chunk) {
    return chunk.load(std::memory_order_relaxed) == nullptr;
  };
  const auto place = std::find_if(chunks_.begin(), chunks_.end(), empty);
  if (place == chunks_.end())
    fail(PKV_LIMIT_REACHED, "all %u entries for handles are taken, which is the limit",
         max_chunks * chunk_entries);
  auto entries = std::make_unique<HandleEntry[]>(chunk_entries);
  const uint32_t base = static_cast<uint32_t>(place - chunks_.begin()) * chunk_entries;
  for (uint32_t i = 0; i < chunk_entries; i++) entries[i].index = base + i;
  HandleEntry* before = nullptr;
  if (!place->compare_exchange_strong(before, entries.get(), std::memory_order_acq_rel))
    return;  // another thread added a chunk
  HandleEntry* const added = entries.release();
  for (uint32_t i = chunk_entries; i > 0; i -= run_entries)
    push(free_runs_, &HandleEntry::next_run, &added[i - run_entries]);
}

}  // namespace pkv::api
