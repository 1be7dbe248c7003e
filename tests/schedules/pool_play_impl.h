// The calls of PoolPlay's threads, and the checks at the end.
#pragma once

#include <algorithm>

#include "pool_play.h"

namespace schedules {

inline void PoolPlay::perform(const Step& step) {
  const int thread = scheduler.current();
  Slots& slots = slots_[thread];
  turn_of_[thread] = ++turn_;
  if (scheduler.telling() && scheduler.running()) scheduler.note(step.text);
  if (step.verb == "alloc") return alloc(step, slots);
  if (step.verb == "retain" || step.verb == "share") return retain(step, slots);
  if (step.verb == "release" || step.verb == "drop") return release(step, slots);
  if (step.verb == "rest") return rest();
  if (step.verb == "alone") return take_alone();
  if (step.verb == "keep") return hold_back(step, slots);
  if (step.verb == "give") return give_out(step, slots);
  if (step.verb == "hold") {
    std::vector<Block> held(step.n);
    pool_->try_alloc(step.n, held.data());
    return;
  }
  Held& held = slots[static_cast<size_t>(step.slots.at(0))];
  if (step.verb == "publish") {
    // Block 0 of generation 0 is the number 0, so 1 is added and 0 means nothing.
    if (held.usable) index_->store(held.block + 1, std::memory_order_relaxed);
  } else if (step.verb == "take") {
    const uint64_t found = index_->load(std::memory_order_relaxed);
    held = {found - 1, found != 0};
  } else if (held.usable) {
    step.verb == "look" ? look(step, held) : change(step, held);
  }
}

inline void PoolPlay::alloc(const Step& step, Slots& slots) {
  const uint32_t n = static_cast<uint32_t>(step.slots.size());
  Operation op = begin(Call::alloc, 0, n);
  const bool taken = pool_->try_alloc(n, op.out);
  if (scheduler.telling() && scheduler.running() && !taken) scheduler.note("  is refused");
  for (uint32_t i = 0; i < n; i++) {
    slots[static_cast<size_t>(step.slots[i])] = {op.out[i], taken};
    if (!taken) continue;
    if (pkv::memory::block_id(op.out[i]) >= case_.blocks)
      scheduler.found("alloc gives block %u of %u", pkv::memory::block_id(op.out[i]), case_.blocks);
    payloads_[pkv::memory::block_id(op.out[i])].whole.write("writes the block it was given,");
  }
  end(op, taken ? PKV_OK : PKV_OUT_OF_BLOCKS);
}

// A list that is refused held references for a while. So it counts as the operations it is made of.
inline void PoolPlay::retain(const Step& step, Slots& slots) {
  Block blocks[max_list];
  uint32_t n = 0;
  for (int slot : step.slots) {
    if (!slots[static_cast<size_t>(slot)].usable) return;
    blocks[n++] = slots[static_cast<size_t>(slot)].block;
  }
  const Operation op = begin(Call::retain, blocks[0]);
  size_t failed_at = n;
  const pkv_status status = step.verb == "share"
                                ? pool_->retain_table(std::span(blocks, n), &failed_at)
                            : n == 1 ? pool_->retain(blocks[0])
                                     : pool_->retain(n, blocks, &failed_at);
  if (n == 1 && status != PKV_OK) failed_at = 0;
  for (size_t i = 0; i < std::min<size_t>(failed_at + 1, n); i++) {
    Operation part = op;
    part.block = blocks[i];
    end(part, i == failed_at ? status : PKV_OK);
    part.call = Call::release;
    if (status != PKV_OK && i < failed_at) end(part, PKV_OK);
  }
  if (scheduler.telling() && scheduler.running() && status != PKV_OK)
    scheduler.note("  is refused");
  for (uint32_t i = 0; i < n; i++)
    if (status == PKV_OK)
      payloads_[pkv::memory::block_id(blocks[i])].whole.read("reads the block it retained, which");
    else
      slots[static_cast<size_t>(step.slots[i])].usable = false;
}

inline void PoolPlay::release(const Step& step, Slots& slots) {
  Block blocks[max_list];
  uint32_t n = 0;
  for (int slot : step.slots) {
    if (!slots[static_cast<size_t>(slot)].usable) continue;
    blocks[n++] = slots[static_cast<size_t>(slot)].block;
    if (step.verb == "release")
      payloads_[pkv::memory::block_id(blocks[n - 1])].whole.read("reads the block it holds, which");
  }
  if (n == 0) return;
  const Operation op = begin(Call::release, blocks[0]);
  size_t failed_at = 0;
  const pkv_status status =
      n == 1 ? pool_->release(blocks[0]) : pool_->release(n, blocks, &failed_at);
  if (scheduler.telling() && scheduler.running() && status != PKV_OK)
    scheduler.note("  is refused");
  // A list that has a block twice (two letters may name the same one) is refused whatever others
  // do. So it need not be ordered.
  if (n == 2 && blocks[0] == blocks[1]) {
    if (status == PKV_OK)
      scheduler.found("a list that names block %u twice was released",
                      pkv::memory::block_id(blocks[0]));
    return;
  }
  for (uint32_t i = 0; i < n; i++) {
    Operation part = op;
    part.block = blocks[i];
    if (status == PKV_OK || i == failed_at) end(part, status);
  }
}

// The first blocks are taken as an alloc may take them. A refusal says nothing about the others.
inline void PoolPlay::hold_back(const Step& step, Slots& slots) {
  const uint32_t n = static_cast<uint32_t>(step.slots.size());
  Operation op = begin(Call::alloc, 0, n);
  const bool taken = pool_->hold_back(0, n);
  for (uint32_t i = 0; i < n; i++) {
    if (taken) op.out[i] = pkv::memory::make_block(i, pool_->state(i).generation);
    slots[static_cast<size_t>(step.slots[i])] = {op.out[i], taken};
    if (taken) payloads_[i].whole.write("writes the block it held back,");
  }
  if (taken) end(op, PKV_OK);
}

inline void PoolPlay::give_out(const Step& step, Slots& slots) {
  const uint32_t n = static_cast<uint32_t>(step.slots.size());
  if (!slots[static_cast<size_t>(step.slots[0])].usable) return;
  for (uint32_t i = 0; i < n; i++) payloads_[i].whole.read("reads the block it held back, which");
  const Operation op = begin(Call::release, slots[static_cast<size_t>(step.slots[0])].block);
  pool_->give_out(0, n);
  for (const int slot : step.slots) {
    Operation part = op;
    part.block = slots[static_cast<size_t>(slot)].block;
    end(part, PKV_OK);
  }
}

inline void PoolPlay::change(const Step& step, Held& held) {
  if (step.verb == "write")
    return payloads_[pkv::memory::block_id(held.block)].slots.write("writes the slots, which");
  const Operation op = begin(Call::fill, held.block, step.n);
  end(op, pool_->set_filled(held.block, step.n) ? PKV_OK : PKV_NOT_HELD);
}

inline void PoolPlay::look(const Step&, Held& held) {
  const uint32_t id = pkv::memory::block_id(held.block);
  Operation op = begin(Call::look, held.block);
  op.state = pool_->state(id);
  end(op, PKV_OK);
  if (op.state.filled == block_size &&
      op.state.generation == pkv::memory::block_generation(held.block))
    payloads_[id].slots.read("reads the slots of a full block, which");
}

inline void PoolPlay::rest() {
  if (pool_->free_count() != case_.blocks) return;
  char text[sizeof pkv::Error::text] = {};
  try {
    pool_->validate();
  } catch (const pkv::Error& error) {
    std::memcpy(text, error.text, sizeof text);
  }
  if (text[0] != '\0') scheduler.found("all blocks are counted free, but validate says: %s", text);
}

inline void PoolPlay::take_alone() {
  while (const std::optional<uint32_t> id = pool_->take_alone()) {
    const BlockState state = pool_->state(*id);
    seen_alone_[*id] = state.references == 1 ? state.generation : no_generation;
  }
}

// The thread that takes the blocks that are listed sees each one that a release left with one
// reference, unless it is still listed.
inline void PoolPlay::judge_alone() {
  std::vector<bool> listed(case_.blocks);
  while (const std::optional<uint32_t> id = pool_->take_alone()) {
    if (listed[*id]) scheduler.found("block %u is listed twice", *id);
    listed[*id] = true;
  }
  for (uint32_t id = 0; id < case_.blocks; id++) {
    BlockState last{};
    bool left_alone = false;
    memory.values(state_locations_[id], [&](uint64_t value) {
      const BlockState state = pkv::memory::unpack(value);
      if (state.references != 1) left_alone = false;
      if (state.references == 1 && last.references == 2) left_alone = true;
      last = state;
    });
    if (left_alone && !listed[id] && seen_alone_[id] != last.generation)
      scheduler.found("block %u was left with one reference, and is neither listed nor seen", id);
  }
}

inline std::string PoolPlay::history_key(const Model& end) const {
  std::string key(reinterpret_cast<const char*>(end.states.data()),
                  end.states.size() * sizeof end.states[0]);
  for (const Operation& op : history_) {
    uint64_t preceding = 0;
    for (size_t i = 0; i < history_.size(); i++) preceding |= uint64_t{history_[i].before(op)} << i;
    const uint64_t parts[] = {
        uint64_t(op.thread) << 48 | uint64_t(op.call) << 40 | uint64_t(op.status & 0xffff),
        op.block,
        op.n,
        op.out[0],
        op.out[1],
        op.out[2],
        op.out[3],
        pkv::memory::pack(op.state),
        preceding};
    key.append(reinterpret_cast<const char*>(parts), sizeof parts);
  }
  return key;
}

// The pool is at rest now.
inline void PoolPlay::judge() {
  for (uint32_t location : state_locations_) {
    uint32_t generation = case_.first_generation;
    memory.values(location, [&](uint64_t value) {
      const uint32_t next = pkv::memory::unpack(value).generation;
      if (next < generation)
        scheduler.found("%s goes from generation %u back to %u", memory.name(location).c_str(),
                        generation, next);
      generation = next;
    });
  }
  if (case_.alone) judge_alone();
  try {
    pool_->validate();
  } catch (const pkv::Error& error) {
    scheduler.found("at rest, validate says: %s", error.text);
  }
  const Model end = observe();
  if (pool_->free_count() != end.free())
    scheduler.found("at rest, %u blocks are free, %u are counted", end.free(), pool_->free_count());
  // Executions that differ only in the order of independent accesses have the same history.
  std::sort(history_.begin(), history_.end(), [](const Operation& a, const Operation& b) {
    return a.thread != b.thread ? a.thread < b.thread : a.place < b.place;
  });
  if (scheduler.outcome() == Outcome::finding || !judged_.insert(history_key(end)).second) return;
  if (!Linearization(history_, end, case_.relaxed).exists(begin_))
    scheduler.found("no order of the calls explains what they were answered and what is left");
}

}  // namespace schedules
