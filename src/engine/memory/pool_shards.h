// The bodies of BasicPool that count free blocks, find them and give them back, by shards; included
// by pool_impl.h only.
#pragma once

#include <algorithm>
#include <bit>

#include "engine/memory/pool.h"

namespace pkv {

template <class Atomics>
uint32_t BasicPool<Atomics>::suitable_shards(uint32_t words) noexcept {
  constexpr uint32_t
      worth_it = 64,
      least = 16;  // words: two lines of bits at least for a shard, so that few lines are shared
  return words < worth_it ? 1 : std::min(std::bit_floor(words / least), shard_limit);
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
  // acquire: who sees a block counted also sees its bit.
  for (const Shard& shard : shards_in_use()) free += shard.free.load(std::memory_order_acquire);
  return static_cast<uint32_t>(free);
}

// Bits of blocks that were freed, gathered by word: one swap gives back up to 64 neighbours, one
// addition all in a row of a shard.
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
    pool_.hint().store(word_, std::memory_order_relaxed);  // warm blocks first
    raise_counter();
  }

 private:
  void set_bits() noexcept {
    // release: who claims a bit sees the state as the free left it, and all use of the block
    // before.
    if (mask_ != 0) pool_.free_bits_[word_].fetch_or(mask_, std::memory_order_release);
    mask_ = 0;
  }

  void raise_counter() noexcept {
    // release: who reserves these sees their bits. After the bits: the invariant at the top of
    // pool.h.
    if (count_ != 0) pool_.shard_of(word_).free.fetch_add(count_, std::memory_order_release);
    count_ = 0;
  }

  BasicPool& pool_;
  uint32_t word_ = 0;
  uint64_t mask_ = 0;
  uint64_t count_ = 0;  // of the shard of word_
};

template <class Atomics>
bool BasicPool<Atomics>::try_alloc(size_t n, Block* out) noexcept {
  if (n == 0) return true;
  std::atomic<uint32_t>& hint = this->hint();
  uint32_t start = hint.load(std::memory_order_relaxed);
  bool met = false;
  size_t reserved = reserve(shard_of(start), n, n, shard_count_ > 1 ? &met : nullptr);
  if (met) {
    Shard& own = shards_[Atomics::thread_number() % shard_count_];
    if (&own != &shard_of(start)) start = own.first_word;
    reserved = reserve(own, n, n, nullptr);
  }
  if (reserved == 0) return shard_count_ > 1 && gather(start, n, out);
  hint.store(claim_bits(start, n, out), std::memory_order_relaxed);
  return true;
}

// Reserves `least` to `most` blocks of a shard and returns how many; 0: it has fewer than `least`,
// or another thread was met there by who asks for that.
template <class Atomics>
size_t BasicPool<Atomics>::reserve(Shard& shard, size_t least, size_t most, bool* met) noexcept {
  uint64_t free = shard.free.load(std::memory_order_relaxed);
  for (;;) {
    if (free < least) return 0;
    const uint64_t seen = free, left = free - std::min<uint64_t>(free, most);
    // acquire: the bits that were set before the counter rose are seen by the walk that follows.
    if (shard.free.compare_exchange_weak(free, left, std::memory_order_acquire,
                                         std::memory_order_relaxed)) {
      note_use(shard, used(shard, left));
      return seen - left;
    }
    if (met != nullptr && free != seen) {
      *met = true;
      return 0;
    }
  }
}

template <class Atomics>
uint32_t BasicPool<Atomics>::used(const Shard& shard, uint64_t free) const noexcept {
  // Signed: retired may have risen since, by blocks still counted in free.
  const int64_t used = int64_t{shard.blocks} - static_cast<int64_t>(free) -
                       int64_t{shard.retired.load(std::memory_order_relaxed)};
  return static_cast<uint32_t>(std::max<int64_t>(used, 0));
}

// The peak is the sum of the shards' shares. A shard that outgrows its share first takes over what
// others leave unused of theirs; only then the sum rises. So it is exact with one shard, or while
// threads take turns; and a shard whose share suffices reads it only.
template <class Atomics>
void BasicPool<Atomics>::note_use(Shard& shard, uint32_t now) noexcept {
  uint32_t share = shard.peak_share.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < shard_count_ && now > share; i++) {
    Shard& other = shards_[i];
    if (&other == &shard) continue;
    uint32_t theirs = other.peak_share.load(std::memory_order_relaxed);
    const uint32_t needed = used(other, other.free.load(std::memory_order_relaxed));
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

// Takes n blocks from several shards, the one of the word start first.
template <class Atomics>
bool BasicPool<Atomics>::gather(uint32_t start, size_t n, Block* out) noexcept {
  // Two gatherers may each hold what the other lacks: both give back and look again while there is
  // enough in all.
  constexpr int looks = 8;
  const auto shard_at = [this, start](uint32_t i) -> Shard& {
    return shards_[((start >> shard_shift_) + i) % shard_count_];
  };
  for (int look = 0; look < looks && free_count() >= n; look++) {
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
      hint().store(claim_bits(i == 0 ? start : shard.first_word, reserved[i], out),
                   std::memory_order_relaxed);
      out += reserved[i];
    }
    if (missing == 0) return true;
  }
  return false;
}

// The lowest set bits of a word, at most n of them.
inline uint64_t lowest_bits(uint64_t word, size_t n) {
  uint64_t rest = word;
  for (; n > 0 && rest != 0; n--) rest &= rest - 1;
  return word ^ rest;
}

// Turns n reservations in the shard of this word into blocks, which it looks for from the word on.
// Returns the word where it found the last one.
template <class Atomics>
uint32_t BasicPool<Atomics>::claim_bits(uint32_t word, size_t n, Block* out) noexcept {
  constexpr uint32_t words_per_line = 8;
  const Shard& shard = shard_of(word);
  for (;;) {
    const uint64_t wanted = lowest_bits(free_bits_[word].load(std::memory_order_relaxed), n);
    uint64_t claimed = 0;
    // acquire: sees the state the free left, and orders our use of the block after all use before.
    if (wanted != 0)
      claimed = free_bits_[word].fetch_and(~wanted, std::memory_order_acquire) & wanted;
    for (uint64_t bits = claimed; bits != 0; bits &= bits - 1, n--)
      *out++ = first_reference(word * 64 + static_cast<uint32_t>(std::countr_zero(bits)));
    if (n == 0) return word;
    // Another thread works on this word where a bit was lost to it: out of its way, by a distance
    // of our own.
    const uint64_t step =
        claimed == wanted ? 1
                          : uint64_t{words_per_line} * (1 + Atomics::thread_number() % hint_count);
    word = shard.first_word + static_cast<uint32_t>((word - shard.first_word + step) % shard.words);
  }
}

}  // namespace pkv
