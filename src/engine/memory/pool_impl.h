// The bodies of BasicPool; included by pool.h only.
#pragma once

#include <algorithm>
#include <bit>
#include <new>

#include "base/status.h"
#include "engine/memory/pool.h"

namespace pkv {

// Bits of blocks that were freed, gathered by word: one swap gives back up to 64 neighbours, one addition all of them.
template <class Atomics>
class BasicPool<Atomics>::FreedBits {
 public:
  explicit FreedBits(BasicPool& pool) noexcept : pool_(pool) {}
  FreedBits(const FreedBits&) = delete;
  FreedBits& operator=(const FreedBits&) = delete;

  void add(uint32_t id) noexcept {
    if (id / 64 != word_) set_bits();
    word_ = id / 64;
    mask_ |= uint64_t{1} << id % 64;
    count_++;
  }

  ~FreedBits() {
    if (count_ == 0) return;
    set_bits();
    pool_.hint().store(word_, std::memory_order_relaxed);  // warm blocks first
    // release: who reserves these sees their bits. After the bits: the invariant at the top of pool.h.
    pool_.free_count_.fetch_add(count_, std::memory_order_release);
  }

 private:
  void set_bits() noexcept {
    // release: who claims a bit sees the state as the free left it, and all use of the block before.
    if (mask_ != 0) pool_.free_bits_[word_].fetch_or(mask_, std::memory_order_release);
    mask_ = 0;
  }

  BasicPool& pool_;
  uint32_t word_ = 0;
  uint64_t mask_ = 0;
  uint64_t count_ = 0;
};

template <class Atomics>
BasicPool<Atomics>::BasicPool(uint32_t blocks, uint32_t block_size, std::pmr::memory_resource* memory, uint32_t first_generation)
    : blocks_(blocks),
      block_size_(block_size),
      words_(words_for(blocks)),
      states_(memory),
      free_bits_(memory),
      free_count_(blocks) {
  if (blocks < 1 || blocks > INT32_MAX || block_size < 1 || block_size > max_block_size || first_generation == retired_generation)
    fail(PKV_INVALID_ARGUMENT, "a pool of %u blocks of %u slots: 1 to %d blocks of 1 to %u slots can be had", blocks, block_size,
         INT32_MAX, max_block_size);
  // Atomics cannot be moved: the tables are made in one piece and swapped in.
  std::pmr::vector<atomic<uint64_t>>(blocks, memory).swap(states_);
  std::pmr::vector<atomic<uint64_t>>(words_, memory).swap(free_bits_);
  for (auto& state : states_) state.store(pack({first_generation, 0, 0, false}), std::memory_order_relaxed);
  for (auto& bits : free_bits_) bits.store(~uint64_t{0}, std::memory_order_relaxed);
  if (blocks % 64 != 0) free_bits_.back().store(~uint64_t{0} >> (64 - blocks % 64), std::memory_order_relaxed);
}

template <class Atomics>
uint64_t BasicPool<Atomics>::bookkeeping_bytes(uint32_t blocks) noexcept {
  return (uint64_t{blocks} + words_for(blocks)) * sizeof(atomic<uint64_t>);
}

template <class Atomics>
bool BasicPool<Atomics>::try_alloc(size_t n, Block* out) noexcept {
  if (n == 0) return true;
  if (!reserve(n)) return false;
  claim_bits(n, out);
  return true;
}

template <class Atomics>
bool BasicPool<Atomics>::reserve(size_t n) noexcept {
  uint64_t free = free_count_.load(std::memory_order_relaxed);
  do {
    if (free < n) return false;
    // acquire: the bits that were set before the counter rose are seen by the walk that follows.
  } while (!free_count_.compare_exchange_weak(free, free - n, std::memory_order_acquire, std::memory_order_relaxed));
  // Signed: retired_ may have risen since, by blocks still counted in free.
  const int64_t used = int64_t{blocks_} - static_cast<int64_t>(free - n) - int64_t{retired_.load(std::memory_order_relaxed)};
  uint32_t peak = used_peak_.load(std::memory_order_relaxed);
  while (used > int64_t{peak} &&
         !used_peak_.compare_exchange_weak(peak, static_cast<uint32_t>(used), std::memory_order_relaxed)) {
  }
  return true;
}

// The lowest set bits of a word, at most n of them.
inline uint64_t lowest_bits(uint64_t word, size_t n) {
  uint64_t rest = word;
  for (; n > 0 && rest != 0; n--) rest &= rest - 1;
  return word ^ rest;
}

// Turns n reservations into blocks.
template <class Atomics>
void BasicPool<Atomics>::claim_bits(size_t n, Block* out) noexcept {
  constexpr uint32_t words_per_line = 8;
  std::atomic<uint32_t>& start = hint();
  uint32_t word = start.load(std::memory_order_relaxed);
  for (;;) {
    const uint64_t wanted = lowest_bits(free_bits_[word].load(std::memory_order_relaxed), n);
    uint64_t claimed = 0;
    // acquire: sees the state the free left, and orders our use of the block after all use before.
    if (wanted != 0) claimed = free_bits_[word].fetch_and(~wanted, std::memory_order_acquire) & wanted;
    for (uint64_t bits = claimed; bits != 0; bits &= bits - 1, n--)
      *out++ = first_reference(word * 64 + static_cast<uint32_t>(std::countr_zero(bits)));
    if (n == 0) break;
    // Another thread works on this word where a bit was lost to it: out of its way, by a distance of our own.
    const uint64_t step = claimed == wanted ? 1 : uint64_t{words_per_line} * (1 + Atomics::thread_number() % hint_count);
    word = static_cast<uint32_t>((word + step) % words_);
  }
  start.store(word, std::memory_order_relaxed);
}

// The state of a block whose bit was claimed changes by nobody else's hand: others see no references and refuse.
template <class Atomics>
Block BasicPool<Atomics>::first_reference(uint32_t id) noexcept {
  const uint32_t generation = unpack(states_[id].load(std::memory_order_relaxed)).generation;
  states_[id].store(pack({generation, 1, 0, false}), std::memory_order_relaxed);
  return make_block(id, generation);
}

// Every change of a live block: change(state) edits a copy or refuses, and the swap takes effect only on the state it saw.
template <class Atomics>
template <class Change>
pkv_status BasicPool<Atomics>::update(Block block, pkv_status stale, Change change) noexcept {
  if (block_id(block) >= blocks_) return PKV_OUT_OF_RANGE;
  atomic<uint64_t>& word = states_[block_id(block)];
  uint64_t seen = word.load(std::memory_order_relaxed);
  for (;;) {
    BlockState state = unpack(seen);
    if (state.generation != block_generation(block) || state.references == 0) return stale;
    const pkv_status status = change(state);
    if (status != PKV_OK) return status;
    // release: what this thread wrote into the block comes before its seal or its release; acquire: who retains the block, or
    // frees it as the last holder, comes after.
    if (word.compare_exchange_weak(seen, pack(state), std::memory_order_acq_rel, std::memory_order_relaxed)) return PKV_OK;
  }
}

template <class Atomics>
pkv_status BasicPool<Atomics>::retain(Block block) noexcept {
  return update(block, PKV_STALE_HANDLE, [](BlockState& state) {
    if (state.references == max_references) return PKV_REF_LIMIT;
    state.references++;
    return PKV_OK;
  });
}

template <class Atomics>
pkv_status BasicPool<Atomics>::retain(size_t n, const Block* blocks, size_t* failed_at) noexcept {
  for (size_t i = 0; i < n; i++) {
    const pkv_status status = retain(blocks[i]);
    if (status == PKV_OK) continue;
    release_held(i, blocks);
    if (failed_at != nullptr) *failed_at = i;
    return status;
  }
  return PKV_OK;
}

// Takes one reference away; a block that becomes free is added to freed, whose end makes it claimable.
template <class Atomics>
pkv_status BasicPool<Atomics>::drop(Block block, FreedBits& freed) noexcept {
  BlockState after{};
  const pkv_status status = update(block, PKV_DOUBLE_FREE, [&after](BlockState& state) {
    state.references--;
    if (state.references == 0) state = {state.generation + 1, 0, 0, false};
    after = state;
    return PKV_OK;
  });
  if (status != PKV_OK || after.references != 0) return status;
  if (after.generation == retired_generation)
    retired_.fetch_add(1, std::memory_order_relaxed);
  else
    freed.add(block_id(block));
  return PKV_OK;
}

template <class Atomics>
pkv_status BasicPool<Atomics>::release(Block block) noexcept {
  FreedBits freed(*this);
  return drop(block, freed);
}

template <class Atomics>
pkv_status BasicPool<Atomics>::release_held(size_t n, const Block* blocks, size_t* failed_at) noexcept {
  FreedBits freed(*this);
  pkv_status first = PKV_OK;
  for (size_t i = 0; i < n; i++) {
    const pkv_status status = drop(blocks[i], freed);
    if (status == PKV_OK || first != PKV_OK) continue;
    first = status;
    if (failed_at != nullptr) *failed_at = i;
  }
  return first;
}

template <class Atomics>
pkv_status BasicPool<Atomics>::release(size_t n, const Block* blocks, size_t* failed_at) noexcept {
  size_t ignored;
  if (failed_at == nullptr) failed_at = &ignored;
  bool ascending = true;
  pkv_status status = check_held(n, blocks, failed_at, &ascending);
  if (status == PKV_OK && !ascending) status = find_duplicate(n, blocks, failed_at);
  // After the check only a misuse can fail: another thread that releases, right now, what this list holds.
  return status == PKV_OK ? release_held(n, blocks, failed_at) : status;
}

template <class Atomics>
pkv_status BasicPool<Atomics>::check_held(size_t n, const Block* blocks, size_t* failed_at, bool* ascending) const noexcept {
  for (size_t i = 0; i < n; i++) {
    if (is_current(blocks[i])) {
      if (i > 0 && block_id(blocks[i]) <= block_id(blocks[i - 1])) *ascending = false;
      continue;
    }
    *failed_at = i;
    return block_id(blocks[i]) < blocks_ ? PKV_DOUBLE_FREE : PKV_OUT_OF_RANGE;
  }
  return PKV_OK;
}

// DOUBLE_FREE where a block stands twice in the list.
template <class Atomics>
pkv_status BasicPool<Atomics>::find_duplicate(size_t n, const Block* blocks, size_t* failed_at) const noexcept {
  constexpr size_t few = 64;
  if (n <= few) {
    for (size_t i = 1; i < n; i++) {
      if (std::find(blocks, blocks + i, blocks[i]) == blocks + i) continue;
      *failed_at = i;
      return PKV_DOUBLE_FREE;
    }
    return PKV_OK;
  }
  try {
    // All are held, so of more than blocks_ entries two of the first blocks_ + 1 are the same: a longer list needs no more
    // scratch.
    std::pmr::vector<Block> sorted(blocks, blocks + std::min(n, size_t{blocks_} + 1), states_.get_allocator().resource());
    std::sort(sorted.begin(), sorted.end());
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice == sorted.end()) return PKV_OK;
    *failed_at = static_cast<size_t>(std::find(std::find(blocks, blocks + n, *twice) + 1, blocks + n, *twice) - blocks);
    return PKV_DOUBLE_FREE;
  } catch (const std::bad_alloc&) {
    return PKV_NO_MEMORY;
  }
}

template <class Atomics>
pkv_status BasicPool<Atomics>::claim(Block block, uint32_t n, uint32_t* offset) noexcept {
  uint32_t first = 0;
  const pkv_status status = update(block, PKV_STALE_HANDLE, [this, n, &first](BlockState& state) {
    if (state.sealed) return PKV_BLOCK_SEALED;
    if (state.references > 1) return PKV_BUSY;
    if (n > block_size_ - state.filled) return PKV_BLOCK_FULL;
    first = state.filled;
    state.filled += n;
    return PKV_OK;
  });
  if (status == PKV_OK) *offset = first;
  return status;
}

template <class Atomics>
pkv_status BasicPool<Atomics>::set_filled(Block block, uint32_t filled) noexcept {
  if (filled > block_size_) return PKV_OUT_OF_RANGE;
  return update(block, PKV_STALE_HANDLE, [this, filled](BlockState& state) {
    if (state.references > 1) return PKV_BUSY;
    state.filled = filled;
    state.sealed = filled == block_size_;
    return PKV_OK;
  });
}

template <class Atomics>
pkv_status BasicPool<Atomics>::seal(Block block) noexcept {
  return update(block, PKV_STALE_HANDLE, [](BlockState& state) {
    state.sealed = true;
    return PKV_OK;
  });
}

template <class Atomics>
pkv_status BasicPool<Atomics>::reset(Block block) noexcept {
  return update(block, PKV_STALE_HANDLE, [](BlockState& state) {
    if (state.references > 1) return PKV_BUSY;
    state.filled = 0;
    state.sealed = false;
    return PKV_OK;
  });
}

template <class Atomics>
bool BasicPool<Atomics>::is_current(Block block) const noexcept {
  if (block_id(block) >= blocks_) return false;
  const BlockState now = state(block_id(block));
  return now.generation == block_generation(block) && now.references > 0;
}

template <class Atomics>
PoolStats BasicPool<Atomics>::stats() const noexcept {
  PoolStats stats{};
  stats.blocks = blocks_;
  for (uint32_t id = 0; id < blocks_; id++) {
    const BlockState block = state(id);
    stats.used += block.references > 0;
    stats.shared += block.references > 1;
    stats.retired += block.generation == retired_generation;
    stats.references += block.references;
    stats.slots_filled += block.filled;
  }
  stats.free = stats.blocks - stats.used - stats.retired;
  stats.used_peak = used_peak_.load(std::memory_order_relaxed);
  return stats;
}

template <class Atomics>
void BasicPool<Atomics>::validate() const {
  uint64_t set = 0;
  for (uint32_t id = 0; id < blocks_; id++) {
    const BlockState block = state(id);
    const bool claimable = block.references == 0 && block.generation != retired_generation;
    set += is_free(id);
    if (is_free(id) != claimable)
      fail(PKV_INTERNAL, "free bit == (references == 0 and not retired): block %u has bit %d, references %u, generation %u", id,
           is_free(id), block.references, block.generation);
    if (block.filled > block_size_)
      fail(PKV_INTERNAL, "filled <= block_size: block %u has %u of %u slots", id, block.filled, block_size_);
    if (block.references == 0 && (block.filled != 0 || block.sealed))
      fail(PKV_INTERNAL, "filled == 0 and sealed == 0 without references: block %u has filled %u, sealed %d", id, block.filled,
           block.sealed);
    if (block.references > 0 && block.generation == retired_generation)
      fail(PKV_INTERNAL, "references == 0 when retired: block %u has %u", id, block.references);
  }
  if (blocks_ % 64 != 0 && free_bits_.back().load(std::memory_order_relaxed) >> blocks_ % 64 != 0)
    fail(PKV_INTERNAL, "no bit beyond the last of %u blocks is set: the last word is %llx", blocks_,
         (unsigned long long)free_bits_.back().load(std::memory_order_relaxed));
  if (set != free_count())
    fail(PKV_INTERNAL, "set bits == free_count: %llu bits, counter %u", (unsigned long long)set, free_count());
  const PoolStats counted = stats();
  if (set + counted.used + retired() != blocks_)
    fail(PKV_INTERNAL, "free + used + retired == blocks: %llu + %llu + %u, %u blocks", (unsigned long long)set,
         (unsigned long long)counted.used, retired(), blocks_);
  if (counted.used_peak < counted.used)
    fail(PKV_INTERNAL, "used <= used_peak: %llu, %llu", (unsigned long long)counted.used, (unsigned long long)counted.used_peak);
}

}  // namespace pkv
