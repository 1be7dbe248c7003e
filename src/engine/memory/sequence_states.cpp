// Sequences of groups of states: which states a step keeps, and which the table holds.
//
// The table holds the state at the end of the sequence, the one after its last full block (for the
// prefix index and the store, and for a trim; it goes where blocks are short), and checkpoints.
#include <algorithm>
#include <cassert>
#include <utility>

#include "base/status.h"
#include "engine/memory/sequence.h"

namespace pkv::memory {

namespace {

// Calls visit(tokens) for each number of new tokens after which a step of positions [length, end)
// keeps a state, in rising order: after every token of a short step, or else at each checkpoint, at
// the last full block if there are checkpoints, and at the end.
template <class Visit>
void for_each_kept(const Group& group, uint64_t length, uint64_t end, const Visit& visit) {
  const Shape& shape = group.shape;
  if (end - length <= shape.draft_tokens) {
    for (uint64_t at = length + 1; at <= end; at++) visit(static_cast<uint32_t>(at - length));
    return;
  }
  if (const uint64_t every = shape.checkpoint_tokens; every != 0) {
    const uint64_t last_full = group.block_of(end) * group.block_size;
    for (uint64_t at = (length / every + 1) * every; at < std::min(last_full, end); at += every)
      visit(static_cast<uint32_t>(at - length));
    if (last_full > length && last_full < end) visit(static_cast<uint32_t>(last_full - length));
  }
  if (end > length) visit(static_cast<uint32_t>(end - length));
}

// Returns the place in `kept` of the token that comes just before the state after `tokens` new
// tokens; kept.size() if it is not kept.
size_t rank_of(std::span<const uint32_t> kept, uint32_t tokens) {
  const auto found = std::lower_bound(kept.begin(), kept.end(), tokens - 1);
  return found != kept.end() && *found == tokens - 1 ? static_cast<size_t>(found - kept.begin())
                                                     : kept.size();
}

}  // namespace

void check_has_rows(const Group& group, const char* who) {
  if (group.has_states())
    fail(PKV_UNSUPPORTED, "%s: the layer keeps a state, and no keys and values", who);
}

void check_has_states(const Group& group, uint32_t layer) {
  if (!group.has_states())
    fail(PKV_UNSUPPORTED, "layer %u keeps keys and values, and no state", layer);
  if (group.storage == PKV_STORAGE_NONE)
    fail(PKV_UNSUPPORTED, "layer %u: storage NONE keeps no states, only the ids of their blocks",
         layer);
}

uint64_t Sequence::count_states(uint64_t length, uint64_t end) const {
  uint64_t count = 0;
  for_each_kept(*group_, length, end, [&](uint32_t) { count++; });
  return count;
}

// Returns how many blocks suffice for steps from length to end, however they are cut: what they
// keep for ever, a last full block, and what the largest of them writes beside its checkpoints.
uint64_t Sequence::states_to_reserve(uint64_t length, uint64_t end) const {
  if (end <= length) return 0;
  const uint64_t every = group_->shape.checkpoint_tokens,
                 checkpoints = every == 0 ? 0 : end / every - length / every,
                 drafts = std::min<uint64_t>(group_->shape.draft_tokens, end - length);
  return checkpoints + 1 + std::max<uint64_t>(drafts, 1);
}

void Sequence::check_states_fit(uint64_t length, uint64_t end, const char* who) const {
  const uint64_t states = blocks_in_step(length, end), blocks = group_->pool.blocks();
  if (states <= blocks) return;
  fail(PKV_TOO_LARGE,
       "%s: a step from token %llu to %llu needs %llu states at once in one session; the group has "
       "%llu blocks in all",
       who, (unsigned long long)length, (unsigned long long)end, (unsigned long long)states,
       (unsigned long long)blocks);
}

Block Sequence::state_block(uint64_t tokens) const {
  if (tokens == 0) return no_block;
  const uint64_t i = group_->block_of(tokens - 1);
  if (i >= blocks_.size() || blocks_[i] == no_block) return no_block;
  const uint64_t at = i * group_->block_size + group_->pool.state(ids_[i]).filled;
  return at == tokens ? blocks_[i] : no_block;
}

void Sequence::begin_states(uint64_t length, uint64_t end, std::span<const Block> fresh) noexcept {
  spares_before_step_ = spare_blocks_.size();
  for_each_kept(*group_, length, end, [&](uint32_t tokens) {
    Block block;
    if (spare_blocks_.empty()) {
      block = fresh.front();
      fresh = fresh.subspan(1);
    } else {
      block = spare_blocks_.back();
      spare_blocks_.pop_back();
    }
    new_states_.push_back({tokens, block});
  });
  assert(fresh.empty());
}

// Puts the states of the step that are to be held into the table, and lets go of the others and of
// the older ones that are not needed any more.
void Sequence::commit_states(uint64_t length, uint64_t end,
                             std::span<const uint32_t> kept) noexcept {
  const uint64_t spares = end < reserved_tokens_ ? states_to_reserve(end, reserved_tokens_) : 0,
                 size = group_->block_size, last_full = group_->block_of(end) * size;
  const auto is_held = [&](uint64_t tokens) {
    return tokens == end || tokens == last_full ||
           (tokens % size == 0 && group_->is_checkpoint(tokens));
  };
  if (end > length) {
    if (!is_held(length)) drop_entry(length, spares);
    const uint64_t full_before = group_->block_of(length) * size;
    if (full_before != length && !is_held(full_before)) drop_entry(full_before, spares);
    blocks_.resize(group_->blocks_for(end), no_block);
    ids_.resize(blocks_.size(), PKV_NO_BLOCK);
  }
  for (const NewState& state : new_states_) {
    const uint64_t rank = kept.empty() ? state.tokens - 1 : rank_of(kept, state.tokens),
                   tokens = length + rank + 1;
    if (tokens <= end && is_held(tokens))
      put_state(tokens, state.block);
    else
      drop_state(state.block, spares);
  }
  new_states_.clear();
  release_spares(spares);
}

// Takes over a block as the state after so many tokens.
void Sequence::put_state(uint64_t tokens, Block block) noexcept {
  const uint64_t i = group_->block_of(tokens - 1);
  assert(blocks_[i] == no_block);
  blocks_[i] = block;
  ids_[i] = block_id(block);
  [[maybe_unused]] const pkv_status status =
      group_->pool.set_filled(block, static_cast<uint32_t>(tokens - i * group_->block_size));
  assert(status == PKV_OK);
}

// Drops the state after so many tokens from the table, if it is held.
void Sequence::drop_entry(uint64_t tokens, uint64_t spares) noexcept {
  if (tokens == 0) return;
  const uint64_t i = group_->block_of(tokens - 1);
  if (i >= blocks_.size() || blocks_[i] == no_block) return;
  ids_[i] = PKV_NO_BLOCK;
  drop_state(std::exchange(blocks_[i], no_block), spares);
}

// Gives a block up, or keeps it as a spare one if there are fewer than `spares` and nobody shares
// it.
void Sequence::drop_state(Block block, uint64_t spares) noexcept {
  if (spare_blocks_.size() < spares && group_->pool.set_filled(block, 0) == PKV_OK &&
      spare_blocks_.size() < spare_blocks_.capacity()) {
    spare_blocks_.push_back(block);
    return;
  }
  [[maybe_unused]] const pkv_status status = group_->pool.release(block);
  assert(status == PKV_OK);
}

// Releases spare blocks but the first `keep`.
void Sequence::release_spares(size_t keep) noexcept {
  while (spare_blocks_.size() > keep) {
    drop_state(spare_blocks_.back(), 0);
    spare_blocks_.pop_back();
  }
  if (keep == 0) reserved_tokens_ = 0;
}

void Sequence::abort_states() noexcept {
  for (const NewState& state : new_states_) drop_state(state.block, spares_before_step_);
  new_states_.clear();
}

Sequence::Entries Sequence::expired_states(uint64_t length) const {
  const uint64_t full = group_->block_of(length);
  const bool gives_way = full > 0 && group_->offset_of(length) != 0 &&
                         !group_->is_checkpoint(full * group_->block_size) &&
                         full <= blocks_.size() && blocks_[full - 1] != no_block;
  return gives_way ? Entries{full - 1, full} : Entries{0, 0};
}

}  // namespace pkv::memory
