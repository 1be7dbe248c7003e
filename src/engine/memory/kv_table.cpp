// Maintains the block table of keys and values: steps, windows, copy on write, forks and trims.
#include "engine/memory/kv_table.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/checked.h"
#include "base/status.h"
#include "engine/memory/coverage.h"

namespace pkv::memory {

StepNeed KvTable::step_need(uint64_t length, uint64_t end) const {
  const size_t tail = group_.block_of(length);
  return {.entries = lacking(group_.blocks_for(end), blocks_.size()),
          .tail = end > length && tail < blocks_.size() ? blocks_[tail] : no_block};
}

uint64_t KvTable::spares_needed(uint64_t length, uint64_t end, const GoneCounts* gone) const {
  const bool writes_tail = step_need(length, end).tail != no_block;
  return writes_tail && shared(group_.block_of(length), gone) ? 1 : 0;
}

uint64_t KvTable::blocks_to_hold(uint64_t first, uint64_t end) const {
  const uint64_t needed = group_.blocks_for(end), gone = group_.block_of(first);
  const uint64_t dropped = count_dropped(std::min<size_t>(gone, blocks_.size()), blocks_.size());
  return lacking(needed, gone) + std::min<uint64_t>(sink_blocks(), gone) - dropped;
}

uint64_t KvTable::blocks_in_step(uint64_t length, uint64_t end) const {
  return blocks_to_hold(std::max(first_kept(), first_seen(group_, length)), end);
}

void KvTable::check_fits(uint64_t length, uint64_t end, const char* who) const {
  // Most sequences fit even if nothing left the window; only the others pay for first_kept().
  const uint64_t in_all = group_.pool.blocks();
  if (end <= in_all * group_.block_size || blocks_to_hold(0, end) <= in_all) return;
  const uint64_t blocks = blocks_in_step(length, end);
  if (blocks <= in_all) return;
  fail(PKV_TOO_LARGE,
       "%s: %llu tokens need %llu blocks of %u tokens in one session; the group has %llu in all",
       who, llu(end), llu(blocks), group_.block_size, llu(in_all));
}

void KvTable::begin(uint64_t length, uint64_t end, bool copies,
                    std::span<const Block> fresh) noexcept {
  spares_.begin_step();
  size_before_step_ = blocks_.size();
  if (copies) copy_tail(length, spares_.take(fresh));
  if (!fresh.empty()) append(fresh);
  if (KeyBounds* const bounds = group_.bounds(); bounds != nullptr && end > length)
    for (size_t i = group_.block_of(length); i < group_.blocks_for(end); i++)
      bounds->forget(ids_[i]);
}

// The shared block stays referenced until the step ends, so that abort() can put it back.
void KvTable::copy_tail(uint64_t length, Block own) noexcept {
  copied_index_ = group_.block_of(length);
  copied_from_ = exchange(copied_index_, own);
  if (group_.slab)
    group_.layout.copy_block(group_.slab->data(), block_id(own), block_id(copied_from_));
  mark_filled(length, length);
}

void KvTable::mark_filled(uint64_t begin, uint64_t end) noexcept {
  const uint64_t size = group_.block_size;
  for (size_t i = group_.block_of(begin); i < blocks_.size() && i * size <= end; i++) {
    if (!is_block(blocks_[i]) || shared(i)) continue;
    const uint64_t filled = std::min(size, end - i * size);
    [[maybe_unused]] const bool set =
        group_.pool.set_filled(blocks_[i], static_cast<uint32_t>(filled));
    assert(set);
  }
}

void KvTable::check_keeps(std::span<const uint32_t> kept, uint32_t) const {
  if (group_.keeps_rows()) return;
  for (size_t i = 0; i < kept.size(); i++)
    if (kept[i] != i)
      fail(PKV_UNSUPPORTED,
           "accept: the engine has the rows to move, so only the first new tokens can be kept; "
           "kept[%zu] is %u",
           i, kept[i]);
}

void KvTable::drop_original() noexcept {
  if (copied_from_ != no_block) release_block(std::exchange(copied_from_, no_block));
}

void KvTable::commit(uint64_t length, uint64_t end, std::span<const uint32_t>) noexcept {
  assert(copied_from_ == no_block);
  mark_filled(length, end);
  // Blocks are released one step after they left the window, judged by the length before this step.
  // So a trim back to that length still works.
  if (group_.shape.window != 0) {
    const size_t gone = group_.block_of(first_seen(group_, length));
    for (size_t i = gone; i > sink_blocks() && blocks_[i - 1] != no_block; i--)
      replace(i - 1, no_block);
  }
  // The step may have begun with more tokens.
  const size_t used = std::max<size_t>(size_before_step_, group_.blocks_for(end));
  if (used < blocks_.size()) release_from(used);
  release_expired_spares(end, 0);
}

void KvTable::abort() noexcept {
  if (copied_from_ != no_block)
    spares_.put_back(exchange(copied_index_, std::exchange(copied_from_, no_block)));
  release_from(std::min(size_before_step_, blocks_.size()));
}

size_t KvTable::sink_blocks() const {
  return std::min<size_t>(group_.blocks_for(group_.shape.sinks), blocks_.size());
}

uint64_t KvTable::sinks_end() const {
  return std::min<uint64_t>(sink_blocks() * uint64_t{group_.block_size}, first_kept());
}

BlockTable::Entries KvTable::expired(uint64_t length) const {
  if (group_.shape.window == 0) return {0, 0};
  return {std::max<size_t>(sink_blocks(), first_kept() / group_.block_size),
          std::min<size_t>(group_.block_of(first_seen(group_, length)), blocks_.size())};
}

bool KvTable::can_trim(uint64_t length) const {
  if (group_.offset_of(length) != 0 && blocks_[group_.block_of(length)] == dropped_block)
    return false;
  const uint64_t needed = first_needed(group_, length);
  return needed >= length || needed >= first_kept() || length <= sinks_end();
}

uint64_t KvTable::trim_point(uint64_t length) const {
  if (can_trim(length)) return length;
  // If the tail block is not there, or is needed by no token, trimming to its beginning may still
  // work.
  const uint64_t begin = length - group_.offset_of(length);
  return can_trim(begin) ? begin : sinks_end();
}

void KvTable::check_trim(size_t group, uint64_t length) const {
  if (can_trim(length)) return;
  if (dropped_ > 0)
    fail(
        PKV_OUT_OF_RANGE,
        "trim to %llu tokens: the block that the next one goes into was dropped or left the window "
        "of group %zu; the last length before is %llu",
        llu(length), group, llu(trim_point(length)));
  fail(PKV_OUT_OF_RANGE,
       "trim to %llu tokens: group %zu keeps only positions from %llu on, its window is %u",
       llu(length), group, llu(first_kept()), group_.shape.window);
}

void KvTable::trim(uint64_t length) noexcept {
  BlockTable::trim(length);
  if (group_.offset_of(length) != 0) mark_filled(length, length);
}

bool KvTable::holds(uint64_t begin, uint64_t end) const {
  return (begin >= first_kept() || end <= sinks_end()) &&
         count_dropped(group_.block_of(begin), group_.blocks_for(end)) == 0;
}

int64_t KvTable::slot(uint64_t position) const {
  const uint32_t id = ids_[group_.block_of(position)];
  if (id == PKV_NO_BLOCK_ID) return -1;
  return int64_t{id} * group_.block_size + group_.offset_of(position);
}

kernels::KvView KvTable::view(uint32_t layer) const {
  kernels::KvView view = group_.layout.view(group_.slab->data(), layer);
  view.blocks = ids_.data();
  view.has_holes = dropped_ > 0;
  return view;
}

}  // namespace pkv::memory
