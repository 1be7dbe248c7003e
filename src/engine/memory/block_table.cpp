// What tables of both kinds have in common: entries, reserved blocks, forks and checks.
#include "engine/memory/block_table.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/checked.h"
#include "base/status.h"

namespace pkv::memory {

static_assert(static_cast<uint32_t>(no_block) == PKV_NO_BLOCK_ID);

BlockTable::BlockTable(Group& group, std::pmr::memory_resource& memory)
    : group_(group), blocks_(&memory), ids_(&memory), spares_(group.pool, memory) {}

Block BlockTable::exchange(size_t index, Block block) noexcept {
  ids_[index] = block_id(block);
  return std::exchange(blocks_[index], block);
}

void BlockTable::replace(size_t index, Block block) noexcept {
  const Block before = exchange(index, block);
  dropped_ -= before == dropped_block;
  dropped_ += block == dropped_block;
  if (is_block(before)) release_block(before);
}

void BlockTable::release_block(Block block) noexcept {
  [[maybe_unused]] const pkv_status status = group_.pool.release(block);
  assert(status == PKV_OK);
}

// Releases in one call, because the pool frees neighbouring blocks together.
void BlockTable::release_from(size_t keep) noexcept {
  [[maybe_unused]] const pkv_status status =
      group_.pool.release_held(std::span(blocks_).subspan(keep));
  assert(status == PKV_OK);
  dropped_ -= count_dropped(keep, blocks_.size());
  blocks_.resize(keep);
  ids_.resize(keep);
}

size_t BlockTable::count_dropped(size_t begin, size_t end) const {
  if (dropped_ == 0) return 0;
  const auto first = blocks_.begin();
  return static_cast<size_t>(std::count(first + static_cast<std::ptrdiff_t>(begin),
                                        first + static_cast<std::ptrdiff_t>(end), dropped_block));
}

bool BlockTable::shared(size_t index, const GoneCounts* gone) const {
  return references_left(group_.pool, ids_[index], gone) > 1;
}

uint64_t BlockTable::first_kept() const {
  if (group_.shape.window == 0) return 0;  // true of states, too: no token is needed again
  // Counts from the end of the table, because the window bounds the held entries there, while the
  // released entries before them can be any number.
  size_t i = blocks_.size();
  while (i > 0 && blocks_[i - 1] != no_block) i--;
  return i * uint64_t{group_.block_size};
}

StepNeed BlockTable::reserve_need(uint64_t length, uint64_t end) const {
  StepNeed need = step_need(length, end);
  need.spares = spares_needed(length, end, nullptr);
  need.fresh_spares = lacking(need.spares, spares_.count());
  return need;
}

void BlockTable::ensure_capacity(const StepNeed& need, uint64_t) {
  if (need.entries > 0) reserve_entries(need.entries);
}

void BlockTable::add_reserved(uint64_t length, uint64_t end, const StepNeed& need,
                              std::span<const Block> fresh) noexcept {
  append(fresh.first(need.entries));
  if (end > length) spares_.add(fresh.subspan(need.entries), end);
}

std::span<const Block> BlockTable::expired_spares(uint64_t length, uint64_t taken,
                                                  const GoneCounts* gone) const {
  const std::span<const Block> spares = spares_.blocks();
  if (spares.empty()) return spares;
  const uint64_t needed = std::max(taken, spares_needed(length, spares_.reserved_to(), gone));
  return spares.subspan(std::min<uint64_t>(spares.size(), needed));
}

void BlockTable::release_expired_spares(uint64_t length, uint64_t taken) noexcept {
  const size_t spares = expired_spares(length, taken).size();
  if (spares > 0) spares_.keep(spares_.count() - spares);
}

void BlockTable::release_expired(uint64_t length, uint64_t taken) noexcept {
  release_expired_spares(length, taken);
  const Entries entries = expired(length);
  for (size_t i = entries.begin; i < entries.end; i++) replace(i, no_block);
}

void BlockTable::reserve_entries(size_t more) {
  reserve_more(blocks_, more);
  reserve_more(ids_, more);
}

void BlockTable::append(std::span<const Block> fresh) noexcept {
  const size_t before = blocks_.size();
  pkv::append(blocks_, fresh);
  ids_.resize(blocks_.size());
  std::transform(fresh.begin(), fresh.end(), ids_.begin() + static_cast<std::ptrdiff_t>(before),
                 [](Block block) { return block_id(block); });
  dropped_ += static_cast<size_t>(std::count(fresh.begin(), fresh.end(), dropped_block));
}

void BlockTable::drop(std::span<const uint32_t> entries) noexcept {
  for (const uint32_t entry : entries)
    if (is_block(blocks_[entry])) replace(entry, dropped_block);
}

void BlockTable::trim(uint64_t length) noexcept {
  release_from(std::min<size_t>(blocks_.size(), group_.blocks_for(length)));
  release_spares();
}

void BlockTable::fork_from(const BlockTable& parent, uint64_t length) {
  const std::span<const Block> kept = parent.blocks().first(group_.blocks_for(length));
  reserve_entries(kept.size());
  retain_table(group_, kept);
  append(kept);
}

void BlockTable::validate(uint64_t length, uint64_t forgotten_from,
                          std::span<uint64_t> references) const {
  const uint64_t size = group_.block_size;
  if (blocks_.size() < group_.blocks_for(length))
    fail(PKV_INTERNAL, "a table has %zu blocks for %llu tokens", blocks_.size(), llu(length));
  if (group_.offset_of(length) != 0 && !is_block(blocks_[group_.block_of(length)]))
    fail(PKV_INTERNAL, "a table lacks the part-filled block that the next of %llu tokens goes into",
         llu(length));
  size_t dropped = 0;
  for (size_t i = 0; i < blocks_.size(); i++) {
    const uint32_t id = block_id(blocks_[i]);
    if (ids_[i] != id) fail(PKV_INTERNAL, "entry %zu: id and block differ", i);
    dropped += blocks_[i] == dropped_block;
    if (blocks_[i] == dropped_block && i * size < forgotten_from)
      fail(PKV_INTERNAL, "entry %zu was dropped, but only those from %llu on count as forgotten", i,
           llu(forgotten_from));
    if (!is_block(blocks_[i])) continue;
    const auto state = group_.pool.state(id);
    const uint64_t held = std::min(size, lacking(length, i * size));
    if (state.generation != blocks_[i] >> 32)
      fail(PKV_INTERNAL, "entry %zu: block %u is of another life", i, id);
    if (state.filled < held || state.filled > size)
      fail(PKV_INTERNAL, "entry %zu: block %u is filled to %u, the sequence holds %llu of %llu", i,
           id, state.filled, llu(held), llu(size));
    references[id]++;
  }
  if (dropped != dropped_)
    fail(PKV_INTERNAL, "a table counts %zu dropped blocks and has %zu", dropped_, dropped);
  for (const Block block : spares_.blocks()) references[block_id(block)]++;
  count_step(references);
}

}  // namespace pkv::memory
