// Maintains the block table of a sequence: steps, windows, copy on write, forks and trims.
#include "engine/memory/sequence.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/checked.h"
#include "base/status.h"
#include "base/vectors.h"
#include "engine/memory/coverage.h"

namespace pkv::memory {

static_assert(static_cast<uint32_t>(no_block) == PKV_NO_BLOCK);

namespace {

uint64_t lacking(uint64_t needed, uint64_t there) { return needed - std::min(needed, there); }

}  // namespace

Sequence::Sequence(Group& group, std::pmr::memory_resource& memory)
    : group_(&group),
      blocks_(&memory),
      ids_(&memory),
      tensors_(group.shape, memory),
      spares_(group.pool, memory),
      copied_from_(no_block),
      new_states_(&memory) {}

Sequence::~Sequence() {
  if (copied_from_ != no_block) abort();
  abort_states();
  release_from(0);
  group_->tensor_bytes.fetch_sub(tensors_.bytes(), std::memory_order_relaxed);
}

Sequence::Sequence(Sequence&& other) noexcept
    : group_(other.group_),
      blocks_(std::move(other.blocks_)),
      ids_(std::move(other.ids_)),
      dropped_(std::exchange(other.dropped_, 0)),
      tensors_(std::move(other.tensors_)),
      spares_(std::move(other.spares_)),
      size_before_step_(other.size_before_step_),
      copied_index_(other.copied_index_),
      copied_from_(std::exchange(other.copied_from_, no_block)),
      new_states_(std::move(other.new_states_)) {
  other.blocks_.clear();
  other.ids_.clear();
  other.new_states_.clear();
}

void Sequence::release(size_t index, Block instead) noexcept {
  if (is_block(blocks_[index])) {
    [[maybe_unused]] const pkv_status status = group_->pool.release(blocks_[index]);
    assert(status == PKV_OK);
  }
  dropped_ -= blocks_[index] == dropped_block;
  dropped_ += instead == dropped_block;
  blocks_[index] = instead;
  ids_[index] = block_id(instead);
}

size_t Sequence::count_dropped(size_t begin, size_t end) const {
  if (dropped_ == 0) return 0;
  const auto first = blocks_.begin();
  return static_cast<size_t>(std::count(first + static_cast<std::ptrdiff_t>(begin),
                                        first + static_cast<std::ptrdiff_t>(end), dropped_block));
}

void Sequence::drop(std::span<const uint32_t> entries) noexcept {
  for (const uint32_t entry : entries)
    if (is_block(blocks_[entry])) release(entry, dropped_block);
}

// Releases in one call, because the pool frees neighbouring blocks together.
void Sequence::release_from(size_t keep) noexcept {
  [[maybe_unused]] const pkv_status status =
      group_->pool.release_table(std::span(blocks_).subspan(keep));
  assert(status == PKV_OK);
  dropped_ -= count_dropped(keep, blocks_.size());
  blocks_.resize(keep);
  ids_.resize(keep);
}

bool Sequence::shared(size_t index, const DroppedCounts* dropped) const {
  return references_left(group_->pool, ids_[index], dropped) > 1;
}

uint64_t Sequence::entries_needed(uint64_t end) const {
  return group_->has_states() ? 0 : lacking(group_->blocks_for(end), blocks_.size());
}

uint64_t Sequence::spares_needed(uint64_t length, uint64_t end,
                                 const DroppedCounts* dropped) const {
  if (end <= length) return 0;
  if (group_->has_states()) return states_to_reserve(length, end, dropped);
  return tail_written(length, end) != no_block && shared(group_->block_of(length), dropped) ? 1 : 0;
}

StepNeed Sequence::step_need(uint64_t length, uint64_t end, bool copies) const {
  const uint64_t taken = group_->has_states() ? count_states(length, end) : copies,
                 spares = std::min<uint64_t>(taken, spares_.count());
  return {entries_needed(end) + taken - spares, spares, copies};
}

StepNeed Sequence::reserve_need(uint64_t length, uint64_t end) const {
  uint64_t spares = spares_needed(length, end);
  if (group_->has_states() && end > length) {
    // What is not needed in any case is left out where the pool could never give it.
    const auto held = std::count_if(blocks_.begin(), blocks_.end(), is_block);
    spares = std::min(spares, std::max(states_needed(length, end),
                                       group_->pool.blocks() - static_cast<uint64_t>(held)));
  }
  return {entries_needed(end) + lacking(spares, spares_.count()), spares};
}

uint64_t Sequence::length_to_share(uint64_t length) const {
  if (!group_->has_states() || spares_.reserved_to() <= length) return length;
  const uint64_t full = group_->block_of(length) * group_->block_size;
  return comes_back(full) ? full - 1 : length;
}

Block Sequence::tail_written(uint64_t length, uint64_t end) const {
  if (group_->has_states()) return no_block;  // a step writes its states beside the table
  const size_t tail = group_->block_of(length);
  return end > length && tail < blocks_.size() ? blocks_[tail] : no_block;
}

uint64_t Sequence::blocks_to_hold(uint64_t first, uint64_t end) const {
  const uint64_t needed = group_->blocks_for(end), gone = group_->block_of(first);
  const uint64_t dropped = count_dropped(std::min<size_t>(gone, blocks_.size()), blocks_.size());
  return needed - std::min(needed, gone) + std::min<uint64_t>(sink_blocks(), gone) - dropped;
}

bool Sequence::fits_whole(uint64_t end) const {
  const uint64_t blocks = group_->pool.blocks();
  return end <= blocks * group_->block_size || blocks_to_hold(0, end) <= blocks;
}

uint64_t Sequence::blocks_in_step(uint64_t length, uint64_t end) const {
  if (group_->has_states()) return count_states(length, end) + (length > 0 ? 1 : 0);
  return blocks_to_hold(std::max(first_kept(), first_seen(*group_, length)), end);
}

void Sequence::check_fits(uint64_t length, uint64_t end, const char* who) const {
  if (group_->has_states()) return check_states_fit(length, end, who);
  // Most sequences fit even if nothing left the window; only the others pay for first_kept().
  if (fits_whole(end)) return;
  const uint64_t blocks = blocks_in_step(length, end);
  if (blocks <= group_->pool.blocks()) return;
  fail(PKV_TOO_LARGE,
       "%s: %llu tokens need %llu blocks of %u tokens in one session; the group has %u in all", who,
       llu(end), llu(blocks), group_->block_size, group_->pool.blocks());
}

Sequence::Entries Sequence::expired(uint64_t length) const {
  if (group_->has_states()) return expired_states(length);
  if (group_->shape.window == 0) return {0, 0};
  return {std::max<size_t>(sink_blocks(), first_kept() / group_->block_size),
          std::min<size_t>(group_->block_of(first_seen(*group_, length)), blocks_.size())};
}

std::span<const Block> Sequence::expired_spares(uint64_t length, uint64_t taken,
                                                const DroppedCounts* dropped) const {
  const std::span<const Block> spares = spares_.blocks();
  if (spares.empty()) return spares;
  const uint64_t needed = std::max(taken, spares_needed(length, spares_.reserved_to(), dropped));
  return spares.subspan(std::min<uint64_t>(spares.size(), needed));
}

bool Sequence::release_expired(uint64_t length, uint64_t taken) noexcept {
  const bool spares = release_expired_spares(length, taken);
  const Entries entries = expired(length);
  for (size_t i = entries.begin; i < entries.end; i++) release(i);
  return entries.begin < entries.end || spares;
}

bool Sequence::release_expired_spares(uint64_t length, uint64_t taken) noexcept {
  const size_t spares = expired_spares(length, taken).size();
  if (spares > 0) spares_.keep(spares_.count() - spares);
  return spares > 0;
}

void Sequence::make_room(size_t more, uint64_t end) {
  if (group_->has_states() && end > 0) {
    spares_.make_room(more);
    new_states_.reserve(spares_.count() + more);
    const uint64_t entries = group_->blocks_for(end);
    more = std::max<uint64_t>(more, entries - std::min<uint64_t>(entries, blocks_.size()));
  }
  reserve_more(blocks_, more);
  reserve_more(ids_, more);
  if (group_->storage != PKV_STORAGE_CONTIGUOUS) return;
  const uint64_t before = tensors_.bytes();
  tensors_.ensure(end);
  group_->tensor_bytes.fetch_add(tensors_.bytes() - before, std::memory_order_relaxed);
}

void Sequence::make_room_to_reserve(size_t more, uint64_t end) {
  if (more > 0) spares_.make_room(group_->has_states() ? more : 1);
  make_room(more, end);
}

void Sequence::add_reserved(uint64_t length, uint64_t end, std::span<const Block> fresh) noexcept {
  const uint64_t entries = entries_needed(end);
  append(fresh.first(entries));
  if (end > length) spares_.add(fresh.subspan(entries), end);
}

void Sequence::append(std::span<const Block> fresh) noexcept {
  const size_t before = blocks_.size();
  pkv::append(blocks_, fresh);
  ids_.resize(blocks_.size());
  std::transform(fresh.begin(), fresh.end(), ids_.begin() + static_cast<std::ptrdiff_t>(before),
                 [](Block block) { return PKV_BLOCK_ID(block); });
  dropped_ += static_cast<size_t>(std::count(fresh.begin(), fresh.end(), dropped_block));
}

void Sequence::append_copy(Block fresh, Block from, uint32_t filled) noexcept {
  if (group_->slab)
    group_->layout.copy_block(group_->slab->data(), PKV_BLOCK_ID(fresh), PKV_BLOCK_ID(from));
  append(std::span(&fresh, 1));
  [[maybe_unused]] const pkv_status status = group_->pool.set_filled(fresh, filled);
  assert(status == PKV_OK);
}

void Sequence::replace(size_t index, Block block) noexcept {
  release(index);
  blocks_[index] = block;
  ids_[index] = PKV_BLOCK_ID(block);
}

void Sequence::begin(uint64_t length, uint64_t end, bool copies,
                     std::span<const Block> fresh) noexcept {
  spares_.begin_step();
  if (group_->has_states()) return begin_states(length, end, fresh);
  size_before_step_ = blocks_.size();
  if (copies) copy_tail(length, spares_.take(fresh));
  append(fresh);
  if (KeyBounds* const bounds = group_->bounds())
    for (size_t i = group_->block_of(length); i < group_->blocks_for(end); i++)
      bounds->forget(ids_[i]);
}

// The shared block stays referenced until the step ends, so that abort() can put it back.
void Sequence::copy_tail(uint64_t length, Block own) noexcept {
  const size_t tail = group_->block_of(length);
  copied_index_ = tail;
  copied_from_ = blocks_[tail];
  if (group_->slab) group_->layout.copy_block(group_->slab->data(), PKV_BLOCK_ID(own), ids_[tail]);
  blocks_[tail] = own;
  ids_[tail] = PKV_BLOCK_ID(own);
  mark_filled(length, length);
}

void Sequence::mark_filled(uint64_t begin, uint64_t end) noexcept {
  const uint64_t size = group_->block_size;
  for (size_t i = group_->block_of(begin); i < blocks_.size() && i * size <= end; i++) {
    if (!is_block(blocks_[i]) || shared(i)) continue;
    const uint64_t filled = std::min(size, end - i * size);
    [[maybe_unused]] const pkv_status status =
        group_->pool.set_filled(blocks_[i], static_cast<uint32_t>(filled));
    assert(status == PKV_OK);
  }
}

void Sequence::drop_original() noexcept {
  if (copied_from_ == no_block) return;
  [[maybe_unused]] const pkv_status status =
      group_->pool.release(std::exchange(copied_from_, no_block));
  assert(status == PKV_OK);
}

void Sequence::commit(uint64_t length, uint64_t end, std::span<const uint32_t> kept) noexcept {
  if (group_->has_states()) return commit_states(length, end, kept);
  assert(copied_from_ == no_block);
  mark_filled(length, end);
  // Blocks are released one step after they left the window, judged by the length before this step.
  // So a trim back to that length still works.
  const size_t gone = group_->block_of(first_seen(*group_, length));
  for (size_t i = gone; i > sink_blocks() && blocks_[i - 1] != no_block; i--) release(i - 1);
  release_expired_spares(end, 0);
}

void Sequence::abort() noexcept {
  if (group_->has_states()) return abort_states();
  if (copied_from_ != no_block) {
    spares_.put_back(blocks_[copied_index_]);
    blocks_[copied_index_] = std::exchange(copied_from_, no_block);
    ids_[copied_index_] = PKV_BLOCK_ID(blocks_[copied_index_]);
  }
  release_from(std::min(size_before_step_, blocks_.size()));
}

void Sequence::drop_unused(uint64_t length) noexcept {
  if (group_->has_states()) return;  // commit() did
  release_from(
      std::min(blocks_.size(), std::max<size_t>(size_before_step_, group_->blocks_for(length))));
}

bool Sequence::can_trim(uint64_t length) const {
  if (group_->has_states()) return length == 0 || state_block(length) != no_block;
  if (group_->offset_of(length) != 0 && blocks_[group_->block_of(length)] == dropped_block)
    return false;
  const uint64_t needed = first_needed(*group_, length);
  return needed >= length || needed >= first_kept() || length <= sinks_end();
}

uint64_t Sequence::trim_point(uint64_t length) const {
  if (can_trim(length)) return length;
  if (!group_->has_states()) {
    if (blocks_[group_->block_of(length)] != dropped_block) length = std::min(length, sinks_end());
    // Where the tail was dropped, the block before it is the last that can stay.
    const uint64_t begin = group_->block_of(length) * group_->block_size;
    return can_trim(length) ? length : can_trim(begin) ? begin : sinks_end();
  }
  while (length > 0 && !can_trim(length))
    length = group_->block_of(length - 1) * group_->block_size;
  return length;
}

void Sequence::trim(uint64_t length) noexcept {
  release_from(std::min<size_t>(blocks_.size(), group_->blocks_for(length)));
  release_spares();
  if (!group_->has_states() && group_->offset_of(length) != 0) mark_filled(length, length);
}

void Sequence::clear() noexcept {
  trim(0);
  group_->tensor_bytes.fetch_sub(tensors_.bytes(), std::memory_order_relaxed);
  tensors_.clear();
}

uint64_t Sequence::blocks_needed_to_fork(uint64_t length) const {
  if (group_->storage != PKV_STORAGE_CONTIGUOUS) return 0;
  const std::span<const Block> kept = std::span(blocks_).first(group_->blocks_for(length));
  return static_cast<uint64_t>(std::count_if(kept.begin(), kept.end(), is_block));
}

Sequence Sequence::fork(uint64_t length, std::span<const Block> fresh) const {
  Sequence child(*group_, *blocks_.get_allocator().resource());
  const size_t count = group_->blocks_for(length);
  child.make_room(count,
                  group_->storage == PKV_STORAGE_CONTIGUOUS ? count * group_->block_size : 0);
  const std::span<const Block> kept = std::span(blocks_).first(count);
  if (group_->storage == PKV_STORAGE_CONTIGUOUS) {
    child.tensors_.copy_from(tensors_, length);
    size_t used = 0;
    for (const Block block : kept)
      child.append(is_block(block) ? fresh.subspan(used++, 1) : std::span(&no_block, 1));
    child.mark_filled(0, length);
    return child;
  }
  if (size_t i; group_->pool.retain_table(kept, &i) != PKV_OK)
    fail(PKV_REF_LIMIT, "block %u has %u references, which is the limit", ids_[i],
         group_->pool.references(ids_[i]));
  child.append(kept);
  return child;
}

uint64_t Sequence::first_kept() const {
  if (group_->shape.window == 0) return 0;  // true of states, too: no token is needed again
  // Counts from the end of the table, because the window bounds the held entries there, while the
  // released entries before them can be any number.
  size_t i = blocks_.size();
  while (i > 0 && blocks_[i - 1] != no_block) i--;
  return i * uint64_t{group_->block_size};
}

size_t Sequence::sink_blocks() const {
  return std::min<size_t>(group_->blocks_for(group_->shape.sinks), blocks_.size());
}

// Returns the end of the sinks that are held, where they are apart from the window.
uint64_t Sequence::sinks_end() const {
  return std::min<uint64_t>(sink_blocks() * uint64_t{group_->block_size}, first_kept());
}

bool Sequence::holds(uint64_t begin, uint64_t end) const {
  return (begin >= first_kept() || end <= sinks_end()) &&
         count_dropped(group_->block_of(begin), group_->blocks_for(end)) == 0;
}

int64_t Sequence::slot(uint64_t position) const {
  const uint32_t id = ids_[group_->block_of(position)];
  if (id == PKV_NO_BLOCK) return -1;
  return int64_t{id} * group_->block_size + group_->offset_of(position);
}

kernels::KvView Sequence::view(uint32_t layer) const {
  if (group_->storage == PKV_STORAGE_CONTIGUOUS) return tensors_.view(layer);
  kernels::KvView view = group_->layout.view(group_->slab->data(), layer);
  view.blocks = ids_.data();
  view.has_holes = dropped_ > 0;
  return view;
}

}  // namespace pkv::memory
