// A lock-free allocator of reference-counted block ids. It holds no bytes of blocks.
//
//   free_bits_   one bit per block, set: free to be claimed
//   shards_      ranges of words of free_bits_, each with a counter of its free blocks that nobody
//                has reserved
//   states_      one BlockState per block
//
// alloc reserves n of a shard's counter in one swap, or gathers them from several and gives back
// what it has if they are too few; then it claims as many bits in each shard. The last release
// raises the generation, then sets the bit, then raises the counter. So at every moment, with any
// thread stopped anywhere, in each shard
//
//   set bits >= counter + reservations whose bit is not yet claimed
//
// and a thread with a reservation always has a bit to find. It can miss one on a walk over the
// words only because other threads claimed bits during that walk, and each swap is retried only
// because another thread's took effect: whoever stops, the others get on. This is what lock-free
// means here.
//
// A gatherer holds what others may miss until it knows whether it has enough, and sees the shards
// one after another: alloc may be refused if other threads alloc or release meanwhile, never at
// rest. With one shard, too: the other may reserve the last block and then claim the bit of one
// that is only now released.
//
// A thread works in the shard it worked in last, and leaves it for one of its own when it meets
// another thread there. A small pool has one shard only.
#pragma once

#include <memory_resource>
#include <span>
#include <vector>

#include "engine/memory/atomics.h"
#include "engine/memory/block_state.h"

namespace pkv::memory {

// As pkv_pool_stats; every block is counted exactly once, blocks = free + used + retired.
struct PoolStats {
  uint64_t blocks, free, used, shared, retired;
  uint64_t references;
  uint64_t slots_filled;  // over all blocks, a shared one once
  uint64_t used_peak;
};

template <class Atomics = StdAtomics>
class BasicPool {
 public:
  // All blocks free, in generation first_generation (tests begin near the end). blocks: 1 to 2^31 -
  // 1, block_size: 1 to 256, else INVALID_ARGUMENT. Throws std::bad_alloc. max_shards: up to 16, of
  // whole words; 0: as many as suit the size.
  BasicPool(uint32_t blocks, uint32_t block_size, std::pmr::memory_resource* memory,
            uint32_t first_generation = 0, uint32_t max_shards = 0);
  BasicPool(const BasicPool&) = delete;
  BasicPool& operator=(const BasicPool&) = delete;

  // What a pool takes from its memory resource.
  static uint64_t bookkeeping_bytes(uint32_t blocks) noexcept;

  // Takes n blocks with one reference each, or none. False while another thread is in the middle of
  // an alloc or a release may be about a block that is just becoming free, or that the other will
  // not need.
  bool try_alloc(size_t n, Block* out) noexcept;

  // One reference more: OUT_OF_RANGE, STALE_HANDLE, REF_LIMIT.
  pkv_status retain(Block block) noexcept;
  // One reference more for each, or none; *failed_at is the place of the block that refused.
  pkv_status retain(size_t n, const Block* blocks, size_t* failed_at = nullptr) noexcept;

  // One reference less; the last one frees the block: OUT_OF_RANGE, DOUBLE_FREE.
  pkv_status release(Block block) noexcept;
  // One less for each, after a check of the whole list; a block twice in it is DOUBLE_FREE
  // (*failed_at: a second occurrence). NO_MEMORY: n > 64, not in ascending order of ids, and no
  // scratch to look for duplicates.
  pkv_status release(size_t n, const Block* blocks, size_t* failed_at = nullptr) noexcept;
  // One less for each entry of a list the caller surely holds: not checked beforehand, needs no
  // memory. What cannot be released is passed over; the first such status is returned.
  pkv_status release_held(size_t n, const Block* blocks, size_t* failed_at = nullptr) noexcept;

  // Takes the next n slots of a block nobody shares: OUT_OF_RANGE, STALE_HANDLE, BLOCK_SEALED, BUSY
  // (shared), BLOCK_FULL.
  pkv_status claim(Block block, uint32_t n, uint32_t* offset) noexcept;
  // States the fill of a block nobody shares; a full one is sealed, any other not: OUT_OF_RANGE
  // (also of filled), STALE_HANDLE, BUSY.
  pkv_status set_filled(Block block, uint32_t filled) noexcept;
  pkv_status seal(Block block) noexcept;   // OUT_OF_RANGE, STALE_HANDLE
  pkv_status reset(Block block) noexcept;  // OUT_OF_RANGE, STALE_HANDLE, BUSY

  uint32_t blocks() const noexcept { return blocks_; }
  uint32_t block_size() const noexcept { return block_size_; }
  uint32_t shards() const noexcept { return shard_count_; }
  uint32_t free_count() const noexcept;
  uint32_t retired() const noexcept;

  // id < blocks(). acquire: who sees a block sealed also sees what was written before.
  BlockState state(uint32_t id) const noexcept {
    return unpack(states_[id].load(std::memory_order_acquire));
  }
  uint32_t references(uint32_t id) const noexcept { return state(id).references; }
  bool is_current(Block block) const noexcept;

  PoolStats stats() const noexcept;  // walks all blocks

  // Throws INTERNAL with the first equation that does not hold. The pool must be at rest.
  void validate() const;

 private:
  template <class T>
  using atomic = typename Atomics::template atomic<T>;

  class FreedBits;

  // peak_share and retired are statistics, see Hint.
  struct alignas(64) Shard {
    atomic<uint64_t> free;
    std::atomic<uint32_t> peak_share{0};  // of used_peak
    std::atomic<uint32_t> retired{0};
    uint32_t first_word = 0, words = 0, blocks = 0;
  };
  static constexpr uint32_t shard_limit = 16;

  static uint32_t suitable_shards(uint32_t words) noexcept;
  void split(uint32_t max_shards) noexcept;
  template <class Change>
  pkv_status update(Block block, pkv_status stale, Change change) noexcept;
  size_t reserve(Shard& shard, size_t least, size_t most, bool* met) noexcept;
  bool gather(uint32_t start, size_t n, Block* out) noexcept;
  uint32_t claim_bits(uint32_t word, size_t n, Block* out) noexcept;
  Block first_reference(uint32_t id) noexcept;
  pkv_status drop(Block block, FreedBits& freed) noexcept;
  pkv_status check_held(size_t n, const Block* blocks, size_t* failed_at,
                        bool* ascending) const noexcept;
  pkv_status find_duplicate(size_t n, const Block* blocks, size_t* failed_at) const noexcept;

  uint32_t used(const Shard& shard, uint64_t free) const noexcept;
  void note_use(Shard& shard, uint32_t now) noexcept;
  void validate_block(uint32_t id) const;
  void validate_shard(const Shard& shard) const;

  std::span<Shard> shards_in_use() noexcept { return {shards_, shard_count_}; }
  std::span<const Shard> shards_in_use() const noexcept { return {shards_, shard_count_}; }
  Shard& shard_of(uint32_t word) noexcept { return shards_[word >> shard_shift_]; }
  bool is_free(uint32_t id) const noexcept {
    return free_bits_[id / 64].load(std::memory_order_relaxed) >> id % 64 & 1;
  }
  static uint32_t words_for(uint32_t blocks) { return (blocks + 63) / 64; }

  // Where a thread begins to look for bits. Hints and statistics are advice, no decision rests on
  // them: they are no part of the policy, so that a scheduler need not interleave them.
  struct alignas(64) Hint {
    std::atomic<uint32_t> word{0};
  };
  static constexpr uint32_t hint_count = 64;
  std::atomic<uint32_t>& hint() noexcept {
    return hints_[Atomics::thread_number() % hint_count].word;
  }

  const uint32_t blocks_;
  const uint32_t block_size_;
  const uint32_t words_;
  uint32_t shard_shift_ = 0;  // words of a shard, the last one's excepted, are 1 << this
  uint32_t shard_count_ = 1;
  std::pmr::vector<atomic<uint64_t>> states_;
  std::pmr::vector<atomic<uint64_t>> free_bits_;
  Shard shards_[shard_limit];
  Hint hints_[hint_count];
};

using Pool = BasicPool<>;
extern template class BasicPool<StdAtomics>;  // compiled once, in pool.cpp

}  // namespace pkv::memory
