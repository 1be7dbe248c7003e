// A lock-free allocator of reference-counted block ids. It holds no bytes of blocks.
//
//   free_bits_   one bit per block, set while the block is free and no alloc has claimed it
//   shards_      ranges of words of free_bits_, each with a counter of its blocks that are free and
//                not yet reserved by an alloc
//   states_      one BlockState per block
//
// An alloc of n blocks has two phases. First it reserves: it subtracts n from the counter of one
// shard with a compare-and-swap. If no shard has n, it gathers smaller reservations from several
// shards, and returns them if they are too few. Then it claims: shard by shard, it clears as many
// set bits as it has reserved. The release of the last reference raises the generation, then sets
// the bit, then raises the counter. This order keeps an invariant in each shard, at every moment,
// wherever a thread may be suspended:
//
//   set bits >= counter + reservations whose bit is not yet claimed
//
// So there is always a set bit for a thread that has a reservation. A walk over the words can miss
// it only if other threads claimed bits meanwhile, and a compare-and-swap is retried only if
// another thread's succeeded. Whichever thread stops, the others make progress: this is what
// lock-free means here.
//
// An alloc may fail although enough blocks are free, but only if other threads alloc, release or
// hold back blocks at the same time. There are three ways:
// - A gatherer sees the shards one after another, and until it knows whether it has enough, it
//   holds reservations that another alloc then misses.
// - Even with one shard, a thread may reserve the last block, but claim the bit of a block that is
//   just being released. The block whose bit is left is not counted until that release raises the
//   counter.
// - hold_back() takes its blocks one after the other, and gives them back if it cannot take all.
//   Until then another alloc misses them.
//
// A thread uses the shard it used last, and changes to another shard when it contends with another
// thread. A small pool has only one shard.
#pragma once

#include <memory_resource>
#include <optional>
#include <span>
#include <vector>

#include "engine/memory/atomics.h"
#include "engine/memory/block_state.h"
#include "engine/memory/id_queue.h"
#include "engine/memory/page_use.h"

namespace pkv::memory {

// The numbers of pkv_pool_stats: blocks = free + held + retired. Blocks that are held back are not
// counted.
struct PoolStats {
  uint64_t blocks, free, held, shared, retired;
  uint64_t references;
  uint64_t filled_slots;  // of all blocks; those of a shared block count once
  uint64_t held_peak;
};

template <class Atomics = StdAtomics>
class BasicPool {
 public:
  // Makes a pool of 1 to 2^31 - 1 free blocks. first_generation is the generation of all blocks;
  // tests set it near retired_generation. The pool has at most max_shards shards (1 to 16), or as
  // many as suit its size if that is 0. Throws INVALID_ARGUMENT or std::bad_alloc.
  BasicPool(uint32_t blocks, std::pmr::memory_resource* memory, uint32_t first_generation = 0,
            uint32_t max_shards = 0);
  BasicPool(const BasicPool&) = delete;
  BasicPool& operator=(const BasicPool&) = delete;

  // Returns how many bytes a pool takes from its memory resource.
  static uint64_t bookkeeping_bytes(uint32_t blocks) noexcept;

  // Allocates n blocks with one reference each and returns true; or allocates none and returns
  // false. It may return false although n blocks are free, if other threads alloc, release or hold
  // back blocks at the same time: see the top of this file.
  bool try_alloc(size_t n, Block* out) noexcept;

  // Adds a reference. Returns OUT_OF_RANGE, NOT_HELD or LIMIT_REACHED if it cannot.
  pkv_status retain(Block block) noexcept;
  // Adds a reference to each block of a list, or to none. If it fails, *failed_at is the index of
  // the first block that could not be retained.
  pkv_status retain(size_t n, const Block* blocks, size_t* failed_at = nullptr) noexcept;

  // Removes a reference; without references the block is free. Returns OUT_OF_RANGE or NOT_HELD
  // if it cannot.
  pkv_status release(Block block) noexcept;
  // Checks a list of blocks, then removes a reference from each; if a check fails, from none. A
  // block that is in the list twice is a NOT_HELD, and *failed_at is the index of its second
  // occurrence. To find duplicates, lists of more than 64 blocks that are not in ascending order of
  // ids need scratch memory; without it, returns OUT_OF_MEMORY.
  pkv_status release(size_t n, const Block* blocks, size_t* failed_at = nullptr) noexcept;
  // Removes a reference from each block of a list or a block table (entries may be no_block)
  // without checking it first, for callers that are known to hold these references. Needs no
  // memory. Skips blocks that cannot be released, and returns the status of the first of these,
  // whose index is *failed_at.
  pkv_status release_held(std::span<const Block> blocks, size_t* failed_at = nullptr) noexcept;

  // Adds a reference to each block of a block table (entries may be no_block), or to none. The
  // caller must hold references to these blocks, so that none is freed meanwhile. Returns
  // LIMIT_REACHED if a block has too many references, and sets *failed_at to the index of its
  // entry.
  pkv_status retain_table(std::span<const Block> table, size_t* failed_at) noexcept;

  // Takes the free blocks [first, first + n) out of use until give_out() and returns true; or takes
  // none and returns false. They count as neither free nor held, and have one reference, which the
  // caller holds. Like try_alloc(), it may fail while other threads alloc or release blocks.
  bool hold_back(uint32_t first, uint32_t n) noexcept;
  // Makes blocks free again that were held back.
  void give_out(uint32_t first, uint32_t n) noexcept;

  // From now on, lists each block of which a release leaves one reference, until take_alone()
  // returns it. Other threads must not use the pool yet. Throws bad_alloc.
  void list_alone() { alone_.emplace(blocks_, states_.get_allocator().resource()); }
  // Returns such a block, which may have other references again, or be free. One thread at a time
  // may call it.
  std::optional<uint32_t> take_alone() noexcept { return alone_->take(); }
  // From now on, counts the use of pages. Other threads must not use the pool yet.
  void count_pages(PageUse& use) noexcept { page_use_ = &use; }
  PageUse* page_use() const noexcept { return page_use_; }  // NULL: nothing is shared

  // Sets how many slots of a block are filled, 0 to max_block_size, and returns true. Returns false
  // if the block has another reference, or none.
  bool set_filled(Block block, uint32_t filled) noexcept;

  uint32_t blocks() const noexcept { return blocks_; }
  uint32_t shards() const noexcept { return shard_count_; }
  uint32_t free_count() const noexcept;
  uint32_t retired() const noexcept;
  uint32_t held_back() const noexcept;
  // Returns whether a block (id < blocks()) is free.
  bool is_free(uint32_t id) const noexcept {
    return free_bits_[id / 64].load(std::memory_order_relaxed) >> id % 64 & 1;
  }

  // Returns the state of a block (id < blocks()). The load is an acquire, so a thread that sees a
  // block filled also sees what was written into it before.
  BlockState state(uint32_t id) const noexcept {
    return unpack(states_[id].load(std::memory_order_acquire));
  }
  uint32_t references(uint32_t id) const noexcept { return state(id).references; }
  bool is_current(Block block) const noexcept;

  // Visits all blocks.
  PoolStats stats() const noexcept;

  // Throws INTERNAL with the first invariant that does not hold. No other thread may use the pool
  // meanwhile.
  void validate() const;

 private:
  template <class T>
  using atomic = typename Atomics::template atomic<T>;

  class FreedBits;

  // The other atomics are statistics, so they are not those of the policy: see SearchStart.
  struct alignas(64) Shard {
    atomic<uint64_t> free;
    std::atomic<uint32_t> peak_share{0};  // this shard's part of held_peak
    std::atomic<uint32_t> retired{0};
    std::atomic<uint32_t> held_back{0};
    uint32_t first_word = 0, words = 0, blocks = 0;
  };
  static constexpr uint32_t shard_limit = 16;

  static uint32_t suitable_shards(uint32_t words) noexcept;
  void split(uint32_t max_shards) noexcept;
  template <class Change>
  pkv_status update(Block block, pkv_status stale, Change change) noexcept;
  size_t reserve(Shard& shard, size_t min_count, size_t max_count, bool* contended) noexcept;
  bool gather(uint32_t start, size_t n, Block* out) noexcept;
  uint32_t claim_bits(uint32_t word, size_t n, Block* out) noexcept;
  bool hold_back_bits(uint32_t word, uint64_t bits) noexcept;
  Block first_reference(uint32_t id) noexcept;
  pkv_status retain_held(Block block) noexcept;
  pkv_status drop(Block block, FreedBits& freed) noexcept;
  pkv_status check_held(size_t n, const Block* blocks, size_t* failed_at,
                        bool* ascending) const noexcept;
  pkv_status find_duplicate(size_t n, const Block* blocks, size_t* failed_at) const noexcept;

  uint32_t held(const Shard& shard, uint64_t free) const noexcept;
  void raise_peak(Shard& shard, uint32_t now) noexcept;
  void validate_block(uint32_t id) const;
  void validate_shard(const Shard& shard) const;

  std::span<Shard> shards_in_use() noexcept { return {shards_, shard_count_}; }
  std::span<const Shard> shards_in_use() const noexcept { return {shards_, shard_count_}; }
  Shard& shard_of(uint32_t word) noexcept { return shards_[word >> shard_shift_]; }
  static uint32_t words_for(uint32_t blocks) { return (blocks + 63) / 64; }

  // The word at which a thread begins to look for bits. Correctness does not depend on that, nor on
  // statistics. So they are std::atomic instead of the template's atomics, which the model checker
  // interleaves.
  struct alignas(64) SearchStart {
    std::atomic<uint32_t> word{0};
  };
  static constexpr uint32_t search_starts = 64;
  std::atomic<uint32_t>& search_start() noexcept {
    return search_starts_[Atomics::thread_number() % search_starts].word;
  }

  const uint32_t blocks_;
  const uint32_t words_;
  uint32_t shard_shift_ = 0;  // each shard but the last one has 1 << shard_shift_ words
  uint32_t shard_count_ = 1;
  std::pmr::vector<atomic<uint64_t>> states_;
  std::pmr::vector<atomic<uint64_t>> free_bits_;
  std::optional<BasicIdQueue<Atomics>> alone_;
  PageUse* page_use_ = nullptr;
  Shard shards_[shard_limit];
  SearchStart search_starts_[search_starts];
};

using Pool = BasicPool<>;
extern template class BasicPool<StdAtomics>;  // compiled once, in pool.cpp

}  // namespace pkv::memory
