// The code of the pool's template, instantiated for std::atomic at the end. A test that brings
// atomics of its own includes this file and instantiates the template with them.
#include "engine/memory/pool.h"

#include <algorithm>
#include <bit>
#include <new>

#include "base/status.h"

namespace pkv::memory {

// ---- Shards: counting and finding free blocks ---------------------------------------------------

template <class Atomics>
uint32_t BasicPool<Atomics>::suitable_shards(uint32_t words) noexcept {
  // A shard has at least two cache lines of bits, so that few lines are shared between shards.
  constexpr uint32_t min_words_to_split = 64, min_words_per_shard = 16;
  if (words < min_words_to_split) return 1;
  return std::min(std::bit_floor(words / min_words_per_shard), shard_limit);
}

template <class Atomics>
void BasicPool<Atomics>::split(uint32_t max_shards) noexcept {
  const uint32_t words = std::bit_ceil((words_ + max_shards - 1) / max_shards);
  shard_shift_ = static_cast<uint32_t>(std::countr_zero(words));
  shard_count_ = (words_ + words - 1) / words;
  for (uint32_t i = 0; i < shard_count_; i++) {
    Shard& shard = shards_[i];
    shard.first_word = i * words;
    shard.words = std::min(words, words_ - shard.first_word);
    shard.blocks = std::min(shard.words * 64, blocks_ - shard.first_word * 64);
    shard.free.store(shard.blocks, std::memory_order_relaxed);
  }
}

template <class Atomics>
uint32_t BasicPool<Atomics>::free_count() const noexcept {
  uint64_t free = 0;
  // acquire: a thread that sees a block counted also sees its bit.
  for (const Shard& shard : shards_in_use()) free += shard.free.load(std::memory_order_acquire);
  return static_cast<uint32_t>(free);
}

// Collects the bits of freed blocks and sets them together: one fetch_or per word, which frees up
// to 64 neighbouring blocks, and one addition to the counter for consecutive blocks of a shard.
template <class Atomics>
class BasicPool<Atomics>::FreedBits {
 public:
  explicit FreedBits(BasicPool& pool) noexcept : pool_(pool) {}
  FreedBits(const FreedBits&) = delete;
  FreedBits& operator=(const FreedBits&) = delete;

  void add(uint32_t id) noexcept {
    const uint32_t word = id / 64;
    if (word != word_) {
      set_bits();
      if (&pool_.shard_of(word) != &pool_.shard_of(word_)) raise_counter();
    }
    word_ = word;
    mask_ |= uint64_t{1} << id % 64;
    count_++;
  }

  ~FreedBits() {
    if (count_ == 0) return;
    set_bits();
    pool_.search_start().store(word_, std::memory_order_relaxed);  // reuse warm blocks first
    raise_counter();
  }

 private:
  void set_bits() noexcept {
    // release: a thread that claims the bit sees the state that the free left, and everything that
    // was done with the block before.
    if (mask_ != 0) pool_.free_bits_[word_].fetch_or(mask_, std::memory_order_release);
    if (mask_ != 0 && pool_.page_use_ != nullptr) {
      raise_counter();  // first: until the counter has risen, the pages cannot be held back
      pool_.page_use_->freed(word_, mask_);
    }
    mask_ = 0;
  }

  void raise_counter() noexcept {
    // release: a thread that reserves these blocks sees their bits. The invariant at the top of
    // pool.h requires that the bits are set before.
    if (count_ != 0) pool_.shard_of(word_).free.fetch_add(count_, std::memory_order_release);
    count_ = 0;
  }

  BasicPool& pool_;
  uint32_t word_ = 0;
  uint64_t mask_ = 0;
  uint64_t count_ = 0;  // of blocks not yet counted, all in the shard of word_
};

template <class Atomics>
bool BasicPool<Atomics>::try_alloc(size_t n, Block* out) noexcept {
  if (n == 0) return true;
  std::atomic<uint32_t>& search = search_start();
  uint32_t start = search.load(std::memory_order_relaxed);
  bool contended = false;
  size_t reserved = reserve(shard_of(start), n, n, shard_count_ > 1 ? &contended : nullptr);
  if (contended) {
    Shard& own = shards_[Atomics::thread_number() % shard_count_];
    if (&own != &shard_of(start)) start = own.first_word;
    reserved = reserve(own, n, n, nullptr);
  }
  if (reserved == 0) return shard_count_ > 1 && gather(start, n, out);
  search.store(claim_bits(start, n, out), std::memory_order_relaxed);
  return true;
}

// Reserves min_count to max_count blocks of a shard and returns how many. Returns 0 if the shard
// has fewer than min_count. If `contended` is given, it also returns 0 and sets *contended when
// another thread changed the counter meanwhile.
template <class Atomics>
size_t BasicPool<Atomics>::reserve(Shard& shard, size_t min_count, size_t max_count,
                                   bool* contended) noexcept {
  uint64_t free = shard.free.load(std::memory_order_relaxed);
  for (;;) {
    if (free < min_count) return 0;
    const uint64_t seen = free, left = free - std::min<uint64_t>(free, max_count);
    // acquire: claim_bits() sees the bits that were set before the counter rose.
    if (shard.free.compare_exchange_weak(free, left, std::memory_order_acquire,
                                         std::memory_order_relaxed)) {
      raise_peak(shard, held(shard, left));
      return seen - left;
    }
    if (contended != nullptr && free != seen) {
      *contended = true;
      return 0;
    }
  }
}

template <class Atomics>
uint32_t BasicPool<Atomics>::held(const Shard& shard, uint64_t free) const noexcept {
  // Signed, because retired or held_back may have risen by blocks that `free` still counts.
  const int64_t held = int64_t{shard.blocks} - static_cast<int64_t>(free) -
                       int64_t{shard.retired.load(std::memory_order_relaxed)} -
                       int64_t{shard.held_back.load(std::memory_order_relaxed)};
  return static_cast<uint32_t>(std::max<int64_t>(held, 0));
}

// Raises the peak, which is the sum of the shares of all shards. A shard that uses more than its
// share first takes over what other shards do not use of theirs, and only then raises the sum. So
// the peak is exact with one shard, or while threads take turns, and a shard that uses less than
// its share writes nothing.
template <class Atomics>
void BasicPool<Atomics>::raise_peak(Shard& shard, uint32_t now) noexcept {
  uint32_t share = shard.peak_share.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < shard_count_ && now > share; i++) {
    Shard& other = shards_[i];
    if (&other == &shard) continue;
    uint32_t theirs = other.peak_share.load(std::memory_order_relaxed);
    const uint32_t needed = held(other, other.free.load(std::memory_order_relaxed));
    if (theirs <= needed) continue;
    const uint32_t unused = theirs - needed,
                   moved = std::min(unused, std::max(now - share, unused / 2));
    if (other.peak_share.compare_exchange_strong(theirs, theirs - moved, std::memory_order_relaxed))
      share = shard.peak_share.fetch_add(moved, std::memory_order_relaxed) + moved;
  }
  while (now > share &&
         !shard.peak_share.compare_exchange_weak(share, now, std::memory_order_relaxed)) {
  }
}

// Allocates n blocks from several shards, beginning with the shard of word `start`.
template <class Atomics>
bool BasicPool<Atomics>::gather(uint32_t start, size_t n, Block* out) noexcept {
  // Two gatherers may each hold blocks that the other lacks. Both give them back and try again as
  // long as there are enough in all shards.
  constexpr int max_attempts = 8;
  const auto shard_at = [this, start](uint32_t i) -> Shard& {
    return shards_[((start >> shard_shift_) + i) % shard_count_];
  };
  for (int attempt = 0; attempt < max_attempts && free_count() >= n; attempt++) {
    size_t reserved[shard_limit] = {}, missing = n;
    for (uint32_t i = 0; i < shard_count_ && missing > 0; i++) {
      reserved[i] = reserve(shard_at(i), 1, missing, nullptr);
      missing -= reserved[i];
    }
    for (uint32_t i = 0; i < shard_count_; i++) {
      if (reserved[i] == 0) continue;
      Shard& shard = shard_at(i);
      if (missing > 0) {
        shard.free.fetch_add(reserved[i], std::memory_order_release);
        continue;
      }
      search_start().store(claim_bits(i == 0 ? start : shard.first_word, reserved[i], out),
                           std::memory_order_relaxed);
      out += reserved[i];
    }
    if (missing == 0) return true;
  }
  return false;
}

// Returns the lowest set bits of a word, at most n of them.
inline uint64_t lowest_bits(uint64_t word, size_t n) {
  uint64_t rest = word;
  for (; n > 0 && rest != 0; n--) rest &= rest - 1;
  return word ^ rest;
}

// Claims the bits of n reserved blocks in the shard of `word`, beginning with that word. Returns
// the word of the last one.
template <class Atomics>
uint32_t BasicPool<Atomics>::claim_bits(uint32_t word, size_t n, Block* out) noexcept {
  constexpr uint32_t words_per_line = 8;
  const Shard& shard = shard_of(word);
  for (;;) {
    const uint64_t wanted = lowest_bits(free_bits_[word].load(std::memory_order_relaxed), n);
    uint64_t claimed = 0;
    // acquire: sees the state that the free left, and everything that was done with the block
    // before.
    if (wanted != 0)
      claimed = free_bits_[word].fetch_and(~wanted, std::memory_order_acquire) & wanted;
    for (uint64_t bits = claimed; bits != 0; bits &= bits - 1, n--)
      *out++ = first_reference(word * 64 + static_cast<uint32_t>(std::countr_zero(bits)));
    if (n == 0) return word;
    // If another thread claimed a wanted bit, it works in this word too. Move away from it, by a
    // distance that depends on the thread.
    const uint64_t step = claimed == wanted ? 1
                                            : uint64_t{words_per_line} *
                                                  (1 + Atomics::thread_number() % search_starts);
    word = shard.first_word + static_cast<uint32_t>((word - shard.first_word + step) % shard.words);
  }
}

// Calls visit(word, bits) for each word of free_bits_ that some of n blocks are in.
template <class Visit>
void for_each_word(uint32_t first, uint32_t n, const Visit& visit) {
  for (uint32_t id = first, end = first + n; id < end;) {
    const uint32_t count = std::min(64 - id % 64, end - id);
    if (!visit(id / 64, (~uint64_t{0} >> (64 - count)) << id % 64)) return;
    id += count;
  }
}

template <class Atomics>
bool BasicPool<Atomics>::hold_back(uint32_t first, uint32_t n) noexcept {
  uint32_t held = 0;
  for_each_word(first, n, [&](uint32_t word, uint64_t bits) {
    if (!hold_back_bits(word, bits)) return false;
    held += static_cast<uint32_t>(std::popcount(bits));
    return true;
  });
  if (held < n) give_out(first, held);
  return held == n;
}

// Claims certain bits of a word, or none, and gives their blocks a reference each.
template <class Atomics>
bool BasicPool<Atomics>::hold_back_bits(uint32_t word, uint64_t bits) noexcept {
  if ((free_bits_[word].load(std::memory_order_relaxed) & bits) != bits) return false;
  Shard& shard = shard_of(word);
  const auto count = static_cast<uint32_t>(std::popcount(bits));
  // Counted before they are reserved, so that they never look used and raise no peak.
  shard.held_back.fetch_add(count, std::memory_order_relaxed);
  uint64_t claimed = 0;
  if (reserve(shard, count, count, nullptr) == count) {
    // acquire: as in claim_bits().
    claimed = free_bits_[word].fetch_and(~bits, std::memory_order_acquire) & bits;
    if (claimed == bits) {
      for (; bits != 0; bits &= bits - 1)
        first_reference(word * 64 + static_cast<uint32_t>(std::countr_zero(bits)));
      return true;
    }
    // Another thread claimed one of them. The bits are set before the counter rises, as in
    // FreedBits.
    free_bits_[word].fetch_or(claimed, std::memory_order_release);
    shard.free.fetch_add(count, std::memory_order_release);
  }
  shard.held_back.fetch_sub(count, std::memory_order_relaxed);
  return false;
}

template <class Atomics>
void BasicPool<Atomics>::give_out(uint32_t first, uint32_t n) noexcept {
  {
    FreedBits freed(*this);
    for (uint32_t id = first; id < first + n; id++)
      drop(make_block(id, state(id).generation), freed);
  }
  for_each_word(first, n, [this](uint32_t word, uint64_t bits) {
    shard_of(word).held_back.fetch_sub(static_cast<uint32_t>(std::popcount(bits)),
                                       std::memory_order_relaxed);
    return true;
  });
}

// ---- Blocks and lists of blocks -----------------------------------------------------------------

template <class Atomics>
BasicPool<Atomics>::BasicPool(uint32_t blocks, std::pmr::memory_resource* memory,
                              uint32_t first_generation, uint32_t max_shards)
    : blocks_(blocks), words_(words_for(blocks)), states_(memory), free_bits_(memory) {
  if (blocks < 1 || blocks > INT32_MAX || first_generation == retired_generation ||
      max_shards > shard_limit)
    fail(PKV_INVALID_ARGUMENT, "a pool of %u blocks; it must have 1 to %d", blocks, INT32_MAX);
  // Atomics cannot be moved, so the tables are constructed at their full size and swapped in.
  std::pmr::vector<atomic<uint64_t>>(blocks, memory).swap(states_);
  std::pmr::vector<atomic<uint64_t>>(words_, memory).swap(free_bits_);
  for (auto& state : states_)
    state.store(pack({first_generation, 0, 0}), std::memory_order_relaxed);
  for (auto& bits : free_bits_) bits.store(~uint64_t{0}, std::memory_order_relaxed);
  if (blocks % 64 != 0)
    free_bits_.back().store(~uint64_t{0} >> (64 - blocks % 64), std::memory_order_relaxed);
  split(max_shards != 0 ? max_shards : suitable_shards(words_));
}

template <class Atomics>
uint64_t BasicPool<Atomics>::bookkeeping_bytes(uint32_t blocks) noexcept {
  return (uint64_t{blocks} + words_for(blocks)) * sizeof(atomic<uint64_t>);
}

// Gives a claimed block its first reference. A plain store suffices: other threads do not change
// the state of a block without references.
template <class Atomics>
Block BasicPool<Atomics>::first_reference(uint32_t id) noexcept {
  const uint32_t generation = unpack(states_[id].load(std::memory_order_relaxed)).generation;
  states_[id].store(pack({generation, 1, 0}), std::memory_order_relaxed);
  if (page_use_ != nullptr) page_use_->take(id);
  return make_block(id, generation);
}

// Makes every change of an allocated block, except the additions of retain_held(). change(state)
// edits a copy of the state or returns why it cannot, and a compare-and-swap stores the copy if the
// state is still the one it was made of. Returns `stale` if the handle is stale.
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
    // release: what this thread wrote into the block happens before it fills or releases it.
    // acquire: a thread that retains the block, or frees it as the last holder, comes after that.
    if (word.compare_exchange_weak(seen, pack(state), std::memory_order_acq_rel,
                                   std::memory_order_relaxed))
      return PKV_OK;
  }
}

template <class Atomics>
pkv_status BasicPool<Atomics>::retain(Block block) noexcept {
  return update(block, PKV_NOT_HELD, [](BlockState& state) {
    if (state.references == max_references) return PKV_LIMIT_REACHED;
    state.references++;
    return PKV_OK;
  });
}

template <class Atomics>
pkv_status BasicPool<Atomics>::retain(size_t n, const Block* blocks, size_t* failed_at) noexcept {
  for (size_t i = 0; i < n; i++) {
    const pkv_status status = retain(blocks[i]);
    if (status == PKV_OK) continue;
    release_held({blocks, i});
    if (failed_at != nullptr) *failed_at = i;
    return status;
  }
  return PKV_OK;
}

// Removes one reference. A block that becomes free is added to `freed`, whose destructor makes it
// claimable.
template <class Atomics>
pkv_status BasicPool<Atomics>::drop(Block block, FreedBits& freed) noexcept {
  BlockState after{};
  const pkv_status status = update(block, PKV_NOT_HELD, [&after](BlockState& state) {
    state.references--;
    if (state.references == 0) state = {state.generation + 1, 0, 0};
    after = state;
    return PKV_OK;
  });
  if (status != PKV_OK) return status;
  const uint32_t id = block_id(block);
  if (after.references == 1 && alone_) alone_->add(id);
  if (after.references != 0) return PKV_OK;
  if (after.generation == retired_generation) {
    shard_of(id / 64).retired.fetch_add(1, std::memory_order_relaxed);
    return PKV_OK;
  }
  if (page_use_ != nullptr) page_use_->free(id);
  freed.add(id);
  return PKV_OK;
}

template <class Atomics>
pkv_status BasicPool<Atomics>::release(Block block) noexcept {
  FreedBits freed(*this);
  return drop(block, freed);
}

template <class Atomics>
pkv_status BasicPool<Atomics>::release_held(std::span<const Block> blocks,
                                            size_t* failed_at) noexcept {
  FreedBits freed(*this);
  pkv_status first = PKV_OK;
  for (size_t i = 0; i < blocks.size(); i++) {
    const pkv_status status = is_block(blocks[i]) ? drop(blocks[i], freed) : PKV_OK;
    if (status == PKV_OK || first != PKV_OK) continue;
    first = status;
    if (failed_at != nullptr) *failed_at = i;
  }
  return first;
}

// Adds a reference to a block that is held. So its generation is current, and an addition suffices,
// which is faster than a compare-and-swap. It is made only far below the limit: to pass it, 2^21
// threads would have to be between the load and the addition.
template <class Atomics>
pkv_status BasicPool<Atomics>::retain_held(Block block) noexcept {
  atomic<uint64_t>& word = states_[block_id(block)];
  if (unpack(word.load(std::memory_order_relaxed)).references > max_references / 2)
    return retain(block);
  // relaxed: the caller keeps its own reference until after this addition, so the block cannot be
  // freed before it.
  word.fetch_add(one_reference, std::memory_order_relaxed);
  return PKV_OK;
}

template <class Atomics>
pkv_status BasicPool<Atomics>::retain_table(std::span<const Block> table,
                                            size_t* failed_at) noexcept {
  for (size_t i = 0; i < table.size(); i++) {
    if (!is_block(table[i])) continue;
    const pkv_status status = retain_held(table[i]);
    if (status == PKV_OK) continue;
    release_held(table.first(i));
    *failed_at = i;
    return status;
  }
  return PKV_OK;
}

template <class Atomics>
pkv_status BasicPool<Atomics>::release(size_t n, const Block* blocks, size_t* failed_at) noexcept {
  size_t ignored;
  if (failed_at == nullptr) failed_at = &ignored;
  if (n == 1) {  // one block needs no check of a list
    const pkv_status status = release(blocks[0]);
    if (status != PKV_OK) *failed_at = 0;
    return status;
  }
  bool ascending = true;
  pkv_status status = check_held(n, blocks, failed_at, &ascending);
  if (status == PKV_OK && !ascending) status = find_duplicate(n, blocks, failed_at);
  // After the check this fails only by misuse: if another thread releases references of this list
  // at the same time.
  return status == PKV_OK ? release_held({blocks, n}, failed_at) : status;
}

template <class Atomics>
pkv_status BasicPool<Atomics>::check_held(size_t n, const Block* blocks, size_t* failed_at,
                                          bool* ascending) const noexcept {
  for (size_t i = 0; i < n; i++) {
    if (is_current(blocks[i])) {
      if (i > 0 && block_id(blocks[i]) <= block_id(blocks[i - 1])) *ascending = false;
      continue;
    }
    *failed_at = i;
    return block_id(blocks[i]) < blocks_ ? PKV_NOT_HELD : PKV_OUT_OF_RANGE;
  }
  return PKV_OK;
}

// Returns NOT_HELD if a block is in the list twice.
template <class Atomics>
pkv_status BasicPool<Atomics>::find_duplicate(size_t n, const Block* blocks,
                                              size_t* failed_at) const noexcept {
  constexpr size_t few = 64;
  if (n <= few) {
    for (size_t i = 1; i < n; i++) {
      if (std::find(blocks, blocks + i, blocks[i]) == blocks + i) continue;
      *failed_at = i;
      return PKV_NOT_HELD;
    }
    return PKV_OK;
  }
  try {
    // All blocks of the list are allocated, so two of its first blocks_ + 1 are the same if it is
    // longer than that. The scratch memory is bounded by this.
    std::pmr::vector<Block> sorted(blocks, blocks + std::min(n, size_t{blocks_} + 1),
                                   states_.get_allocator().resource());
    std::sort(sorted.begin(), sorted.end());
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice == sorted.end()) return PKV_OK;
    *failed_at = static_cast<size_t>(
        std::find(std::find(blocks, blocks + n, *twice) + 1, blocks + n, *twice) - blocks);
    return PKV_NOT_HELD;
  } catch (const std::bad_alloc&) {
    return PKV_OUT_OF_MEMORY;
  }
}

template <class Atomics>
bool BasicPool<Atomics>::set_filled(Block block, uint32_t filled) noexcept {
  return update(block, PKV_NOT_HELD, [filled](BlockState& state) {
           if (state.references > 1) return PKV_BUSY;
           state.filled = filled;
           return PKV_OK;
         }) == PKV_OK;
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
    stats.held += block.references > 0;
    stats.shared += block.references > 1;
    stats.retired += block.generation == retired_generation;
    stats.references += block.references;
    stats.filled_slots += block.filled;
  }
  const uint64_t held_back = this->held_back();
  stats.blocks -= held_back;
  stats.held -= std::min(held_back, stats.held);
  stats.references -= std::min(held_back, stats.references);
  stats.free = stats.blocks - std::min(stats.blocks, stats.held + stats.retired);
  for (const Shard& shard : shards_in_use())
    stats.held_peak += shard.peak_share.load(std::memory_order_relaxed);
  // The sum is not exact while several threads allocate from several shards.
  stats.held_peak = std::clamp(stats.held_peak, stats.held, stats.blocks);
  return stats;
}

template <class Atomics>
uint32_t BasicPool<Atomics>::retired() const noexcept {
  uint32_t retired = 0;
  for (const Shard& shard : shards_in_use())
    retired += shard.retired.load(std::memory_order_relaxed);
  return retired;
}

template <class Atomics>
uint32_t BasicPool<Atomics>::held_back() const noexcept {
  uint32_t held_back = 0;
  for (const Shard& shard : shards_in_use())
    held_back += shard.held_back.load(std::memory_order_relaxed);
  return held_back;
}

template <class Atomics>
void BasicPool<Atomics>::validate() const {
  for (const Shard& shard : shards_in_use()) validate_shard(shard);
  if (blocks_ % 64 != 0 && free_bits_.back().load(std::memory_order_relaxed) >> blocks_ % 64 != 0)
    fail(PKV_INTERNAL, "no bit beyond the last of %u blocks is set: the last word is %llx", blocks_,
         llu(free_bits_.back().load(std::memory_order_relaxed)));
}

template <class Atomics>
void BasicPool<Atomics>::validate_shard(const Shard& shard) const {
  uint32_t set = 0, referenced = 0, retired = 0;
  const uint32_t first = shard.first_word * 64;
  for (uint32_t id = first; id < first + shard.blocks; id++) {
    validate_block(id);
    set += is_free(id);
    referenced += references(id) > 0;
    retired += state(id).generation == retired_generation;
  }
  const uint64_t free = shard.free.load(std::memory_order_relaxed);
  if (set != free)
    fail(PKV_INTERNAL, "set bits == counter, blocks %u to %u: %u bits, counter %llu", first,
         first + shard.blocks - 1, set, llu(free));
  if (retired != shard.retired.load(std::memory_order_relaxed))
    fail(PKV_INTERNAL, "retired blocks == their counter, blocks %u to %u: %u, %u", first,
         first + shard.blocks - 1, retired, shard.retired.load(std::memory_order_relaxed));
  const uint32_t held = referenced - shard.held_back.load(std::memory_order_relaxed);
  if (shard_count_ == 1 && shard.peak_share.load(std::memory_order_relaxed) < held)
    fail(PKV_INTERNAL, "held <= held_peak: %u, %u", held,
         shard.peak_share.load(std::memory_order_relaxed));
}

template <class Atomics>
void BasicPool<Atomics>::validate_block(uint32_t id) const {
  const BlockState block = state(id);
  const bool claimable = block.references == 0 && block.generation != retired_generation;
  if (is_free(id) != claimable)
    fail(PKV_INTERNAL,
         "free bit == (references == 0 and not retired): block %u has bit %d, references %u, "
         "generation %u",
         id, is_free(id), block.references, block.generation);
  if (block.filled > max_block_size)
    fail(PKV_INTERNAL, "filled <= %u: block %u has %u", max_block_size, id, block.filled);
  if (block.references == 0 && block.filled != 0)
    fail(PKV_INTERNAL, "filled == 0 without references: block %u has %u", id, block.filled);
  if (block.references > 0 && block.generation == retired_generation)
    fail(PKV_INTERNAL, "references == 0 when retired: block %u has %u", id, block.references);
}

template class BasicPool<StdAtomics>;

}  // namespace pkv::memory
