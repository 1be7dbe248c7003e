// Decides which states a step keeps, and which the table holds.
#include "engine/memory/state_table.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/checked.h"
#include "base/status.h"

namespace pkv::memory {

namespace {

// Calls visit(tokens) for each number of new tokens after which a step of positions [length, end)
// keeps a state, in ascending order: after every token of a short step, or else at each checkpoint,
// at the last full block if there are checkpoints, and at the end.
template <class Visit>
void for_each_kept(const Group& group, uint64_t length, uint64_t end, const Visit& visit) {
  const Shape& shape = group.shape;
  if (end - length <= shape.max_verify_tokens) {
    for (uint64_t at = length + 1; at <= end; at++) visit(static_cast<uint32_t>(at - length));
    return;
  }
  if (const uint64_t every = shape.checkpoint_interval; every != 0) {
    const uint64_t last_full = group.block_of(end) * group.block_size;
    for (uint64_t at = (length / every + 1) * every; at < std::min(last_full, end); at += every)
      visit(static_cast<uint32_t>(at - length));
    if (last_full > length && last_full < end) visit(static_cast<uint32_t>(last_full - length));
  }
  if (end > length) visit(static_cast<uint32_t>(end - length));
}

// Returns how many checkpoints there are after more than `length` tokens, up to end.
uint64_t count_checkpoints(const Group& group, uint64_t length, uint64_t end) {
  const uint64_t every = group.shape.checkpoint_interval;
  return every == 0 ? 0 : end / every - length / every;
}

// Returns whether a block that ends after more than `length` tokens ends before `end`.
bool ends_block_between(const Group& group, uint64_t length, uint64_t end) {
  return group.block_of(end - 1) > group.block_of(length);
}

// Returns the index in `kept` of new token tokens - 1, after which the state is that of `tokens`
// new tokens; kept.size() if it is not kept.
size_t rank_of(std::span<const uint32_t> kept, uint32_t tokens) {
  const auto found = std::lower_bound(kept.begin(), kept.end(), tokens - 1);
  return found != kept.end() && *found == tokens - 1 ? static_cast<size_t>(found - kept.begin())
                                                     : kept.size();
}

}  // namespace

// Returns how often for_each_kept() visits, without doing so: a caller may ask for any end.
uint64_t StateTable::count_states(uint64_t length, uint64_t end) const {
  if (end - length <= group_.shape.max_verify_tokens) return end - length;
  const uint64_t last_full = group_.block_of(end) * group_.block_size;
  if (group_.shape.checkpoint_interval == 0 || last_full <= length) return 1;
  return count_checkpoints(group_, length, last_full - 1) + (last_full < end ? 2 : 1);
}

StepNeed StateTable::step_need(uint64_t length, uint64_t end) const {
  const uint64_t states = count_states(length, end);
  return {.fresh_spares = lacking(states, spares_.count()),
          .spares = std::min<uint64_t>(states, spares_.count())};
}

bool StateTable::comes_back(uint64_t tokens, const GoneCounts* gone) const {
  return state_block(tokens) != no_block && !group_.is_checkpoint(tokens) &&
         !shared(group_.block_of(tokens - 1), gone);
}

uint64_t StateTable::states_needed(uint64_t length, uint64_t end, const GoneCounts* gone) const {
  const Shape& shape = group_.shape;
  const uint64_t drafts = std::min<uint64_t>(shape.max_verify_tokens, end - length),
                 written = shape.checkpoint_interval != 0 && ends_block_between(group_, length, end)
                               ? 2
                               : 1,
                 before = end - length > 1 && !comes_back(length, gone) ? 1 : 0;
  return count_checkpoints(group_, length, end) + std::max(drafts, written) + before;
}

uint64_t StateTable::spares_needed(uint64_t length, uint64_t end, const GoneCounts* gone) const {
  if (end <= length) return 0;
  const uint64_t full = group_.block_of(length) * group_.block_size,
                 needed = states_needed(length, end, gone);
  if (!ends_block_between(group_, length, end) || (full < length && comes_back(full, gone)))
    return needed;
  const auto held = std::count_if(blocks_.begin(), blocks_.end(), is_block);
  return needed + (needed + static_cast<uint64_t>(held) < group_.pool.blocks() ? 1 : 0);
}

uint64_t StateTable::blocks_in_step(uint64_t length, uint64_t end) const {
  return count_states(length, end) + (length > 0 ? 1 : 0);
}

void StateTable::check_fits(uint64_t length, uint64_t end, const char* who) const {
  const uint64_t states = blocks_in_step(length, end), blocks = group_.pool.blocks();
  if (states <= blocks) return;
  fail(PKV_TOO_LARGE,
       "%s: a step from token %llu to %llu needs %llu states at once in one session; the group has "
       "%llu blocks in all",
       who, llu(length), llu(end), llu(states), llu(blocks));
}

void StateTable::ensure_capacity(const StepNeed& need, uint64_t end) {
  ensure_spare_capacity(need);
  reserve_entries(lacking(group_.blocks_for(end), blocks_.size()));
  new_states_.reserve(spares_.count() + need.fresh_spares);
}

void StateTable::begin(uint64_t length, uint64_t end, bool, std::span<const Block> fresh) noexcept {
  spares_.begin_step();
  for_each_kept(group_, length, end,
                [&](uint32_t tokens) { new_states_.push_back({tokens, spares_.take(fresh)}); });
  assert(fresh.empty());
}

void StateTable::check_keeps(std::span<const uint32_t> kept, uint32_t count) const {
  if (kept.empty() ||
      std::any_of(new_states_.begin(), new_states_.end(),
                  [&](const NewState& state) { return state.tokens == kept.back() + 1; }))
    return;
  fail(
      PKV_UNSUPPORTED,
      "accept: the step keeps no state after new token %u of %u; max_verify_tokens of the group is "
      "%u",
      kept.back(), count, group_.shape.max_verify_tokens);
}

// Puts the states of the step that are to be held into the table, and lets go of the others and of
// the older ones that are not needed any more. If too few reserved blocks are left, because others
// share the states, the state of the last full block is released.
void StateTable::commit(uint64_t length, uint64_t end, std::span<const uint32_t> kept) noexcept {
  if (end >= spares_.reserved_to()) release_spares();
  const uint64_t size = group_.block_size, last_full = group_.block_of(end) * size;
  const auto is_held = [&](uint64_t tokens) {
    return tokens == end || tokens == last_full ||
           (tokens % size == 0 && group_.is_checkpoint(tokens));
  };
  if (end > length) {
    if (!is_held(length)) drop_state(length);
    const uint64_t full_before = group_.block_of(length) * size;
    if (full_before != length && !is_held(full_before)) drop_state(full_before);
    blocks_.resize(group_.blocks_for(end), no_block);
    ids_.resize(blocks_.size(), PKV_NO_BLOCK_ID);
  }
  for (const NewState& state : new_states_) {
    const uint64_t rank = kept.empty() ? state.tokens - 1 : rank_of(kept, state.tokens),
                   tokens = length + rank + 1;
    if (tokens <= end && is_held(tokens))
      put_state(tokens, state.block);
    else
      spares_.recycle(state.block);
  }
  new_states_.clear();
  const uint64_t reserved_to = spares_.reserved_to();
  if (reserved_to == 0) return;
  if (spares_.count() < states_needed(end, reserved_to, nullptr) && last_full != end &&
      comes_back(last_full))
    drop_state(last_full);
  spares_.keep(spares_needed(end, reserved_to, nullptr));
}

void StateTable::put_state(uint64_t tokens, Block block) noexcept {
  const uint64_t i = group_.block_of(tokens - 1);
  [[maybe_unused]] const Block before = exchange(i, block);
  assert(before == no_block);
  [[maybe_unused]] const bool set =
      group_.pool.set_filled(block, static_cast<uint32_t>(tokens - i * group_.block_size));
  assert(set);
}

void StateTable::drop_state(uint64_t tokens) noexcept {
  if (tokens == 0) return;
  const uint64_t i = group_.block_of(tokens - 1);
  if (i < blocks_.size() && blocks_[i] != no_block) spares_.recycle(exchange(i, no_block));
}

void StateTable::abort() noexcept {
  for (const NewState& state : new_states_) spares_.put_back(state.block);
  new_states_.clear();
}

Block StateTable::state_block(uint64_t tokens) const {
  if (tokens == 0) return no_block;
  const uint64_t i = group_.block_of(tokens - 1);
  if (i >= blocks_.size() || blocks_[i] == no_block) return no_block;
  const uint64_t at = i * group_.block_size + group_.pool.state(ids_[i]).filled;
  return at == tokens ? blocks_[i] : no_block;
}

uint64_t StateTable::length_to_share(uint64_t length) const {
  if (spares_.reserved_to() <= length) return length;
  const uint64_t full = group_.block_of(length) * group_.block_size;
  return comes_back(full) ? full - 1 : length;
}

BlockTable::Entries StateTable::expired(uint64_t length) const {
  const uint64_t full = group_.block_of(length);
  const bool gives_way = full > 0 && group_.offset_of(length) != 0 &&
                         !group_.is_checkpoint(full * group_.block_size) &&
                         full <= blocks_.size() && blocks_[full - 1] != no_block;
  return gives_way ? Entries{full - 1, full} : Entries{0, 0};
}

uint64_t StateTable::trim_point(uint64_t length) const {
  while (length > 0 && state_block(length) == no_block)
    length = group_.block_of(length - 1) * group_.block_size;
  return length;
}

void StateTable::check_trim(size_t group, uint64_t length) const {
  if (const uint64_t last = trim_point(length); last != length)
    fail(PKV_OUT_OF_RANGE,
         "trim to %llu tokens: group %zu holds no state there; the last one before is after %llu",
         llu(length), group, llu(last));
}

}  // namespace pkv::memory
