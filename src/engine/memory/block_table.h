// The block table of one sequence in one layer group, and the spare blocks beside it. A table works
// with positions and does not see token ids; Content (engine/session) has those. It does not store
// its length either: callers pass it. There are two kinds: KvTable and StateTable.
//
// A step appends positions [length, end) in this order:
//   1. step_need() says how many blocks the step needs, and the caller allocates them. The caller
//      also decides whether the step copies its tail, since that depends on who else writes.
//   2. ensure_capacity() reserves memory for them, and begin() takes them over.
//   3. The caller writes K and V, or the states, of the new tokens.
//   4. drop_original() and commit(), or abort(), end the step.
//
// Two invariants hold outside of a step:
//   - The table has at least ceil(length / block_size) entries. Each entry is a block that this
//     table references, no_block if it was released because the next token does not need it, or
//     dropped_block if the caller dropped it.
//   - The block of entry i is filled to at least min(block_size, length - i * block_size).
//
// Blocks reserved for later steps are entries at the end of the table, and spare blocks beside it.
// step_need() returns how many spare blocks one step takes, and spares_needed() the most that any
// steps up to some length take; a commit keeps that many.
//
// Only replace() and release_from() release blocks of entries. A step may also take a block out of
// its entry: a shared tail, or a state that is not needed any more.
#pragma once

#include <algorithm>
#include <memory>
#include <memory_resource>
#include <span>
#include <unordered_map>

#include "base/vectors.h"
#include "engine/memory/group.h"
#include "engine/memory/spares.h"

namespace pkv::memory {

// What a step, or a reservation, needs in one table.
struct StepNeed {
  uint64_t entries = 0;       // blocks that the caller allocates for the end of the table
  uint64_t fresh_spares = 0;  // and for new states, the copy of a tail, or spare blocks
  uint64_t spares = 0;        // spare blocks that the table must still have then
  Block tail = no_block;      // the part-filled last block, if the step writes into it
  bool copies = false;        // true if the tail is shared, so that a block replaces it
  // True if the watermark must stay free besides the blocks: the session has not run yet.
  bool keeps_watermark = false;
  uint64_t blocks() const { return entries + fresh_spares; }
};

// By block id: how many references to a shared block a forecast counts as gone.
using GoneCounts = std::unordered_map<uint32_t, uint32_t>;

// Returns how many references to a block are left. gone: the references to leave out; NULL: none.
inline uint32_t references_left(const Pool& pool, uint32_t id, const GoneCounts* gone) {
  const uint32_t all = pool.references(id);
  if (gone == nullptr) return all;
  const auto found = gone->find(id);
  return found == gone->end() ? all : all - found->second;
}

class BlockTable {
 public:
  BlockTable(Group& group, std::pmr::memory_resource& memory);
  virtual ~BlockTable() { release_from(0); }
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;

  Group& group() const { return group_; }
  std::span<const Block> blocks() const { return blocks_; }
  // The ids of blocks(), with PKV_NO_BLOCK_ID where there is no block.
  std::span<const uint32_t> ids() const { return ids_; }
  // Returns how many entries are dropped_block.
  size_t dropped() const { return dropped_; }
  // Blocks in no table, which are reserved for later steps.
  std::span<const Block> spare_blocks() const { return spares_.blocks(); }
  // Returns the position right after the last entry that is no_block, because its block left the
  // window. Returns 0 if there is none, or without a window.
  uint64_t first_kept() const;

  // ---- Steps ------------------------------------------------------------------------------------

  // Returns what a step of positions [length, end) needs without a copy of its tail.
  virtual StepNeed step_need(uint64_t length, uint64_t end) const = 0;
  // Returns what to reserve so that steps up to `end` need no more blocks, however they are cut.
  StepNeed reserve_need(uint64_t length, uint64_t end) const;
  // Returns how many blocks a step of positions [length, end) reads and writes.
  virtual uint64_t blocks_in_step(uint64_t length, uint64_t end) const = 0;
  // Returns how many blocks a pool must have besides a watermark for a step or a reservation that
  // needs some: without a watermark these, otherwise all that the sequence then holds.
  uint64_t required_with_watermark(uint32_t watermark, const StepNeed& need, uint64_t length,
                                   uint64_t end) const {
    const uint64_t taken = need.blocks();
    return watermark == 0 || taken == 0 ? taken : std::max(taken, blocks_in_step(length, end));
  }
  // Throws TOO_LARGE if the blocks that a step of positions [length, end) reads and writes exceed
  // the whole pool, so that it could not run even if this were the only sequence.
  virtual void check_fits(uint64_t length, uint64_t end, const char* who) const = 0;

  // Reserves memory for what is needed, so that begin() and add_reserved() cannot fail. Throws
  // bad_alloc.
  virtual void ensure_capacity(const StepNeed& need, uint64_t end);
  // Begins a step of positions [length, end). Takes over the fresh blocks, as many as the step
  // needs, after ensure_capacity(). Without `copies` the step writes into the tail itself. If the
  // tail is shared, all its other holders must be in the same batch and copy it.
  virtual void begin(uint64_t length, uint64_t end, bool copies,
                     std::span<const Block> fresh) noexcept = 0;
  // Throws UNSUPPORTED if the step in flight, of `count` tokens, cannot be committed with `kept`.
  virtual void check_keeps(std::span<const uint32_t> /*kept*/, uint32_t /*count*/) const {}
  // Releases the shared block that begin() replaced by a copy. Only commit() may follow.
  virtual void drop_original() noexcept {}
  // Ends the step, of which end - length tokens stay: marks its blocks filled up to end, and
  // releases blocks that are not needed any more. All steps of a batch must have dropped their
  // originals before the first one commits. `kept` are the new tokens that stay; the caller has
  // moved their K and V. Empty: the first ones.
  virtual void commit(uint64_t length, uint64_t end, std::span<const uint32_t> kept) noexcept = 0;
  // Undoes begin(): releases the blocks of the step and puts a copied tail back.
  virtual void abort() noexcept = 0;

  // ---- Reserved and expired blocks --------------------------------------------------------------

  // Reserves memory for spare blocks, too. Throws bad_alloc.
  void ensure_spare_capacity(const StepNeed& need) { spares_.ensure_capacity(need.fresh_spares); }
  // Takes over the blocks that reserve_need() asked for, after ensure_capacity() and
  // ensure_spare_capacity().
  void add_reserved(uint64_t length, uint64_t end, const StepNeed& need,
                    std::span<const Block> fresh) noexcept;
  // Releases the spare blocks, which ends what reserve_need() promised.
  void release_spares() noexcept { spares_.keep(0); }
  // Returns up to which length the blocks may be shared, so that what is reserved still suffices.
  virtual uint64_t length_to_share(uint64_t length) const { return length; }

  struct Entries {
    size_t begin, end;
    bool contains(size_t index) const { return index >= begin && index < end; }
  };
  // Returns the entries that the next token does not need. They stay for one step more, so that a
  // trim to the length before the last step works.
  virtual Entries expired(uint64_t length) const = 0;
  // Returns the spare blocks that later steps do not need, for example because the tail is no
  // longer shared. The references in `gone` do not count. The first `taken` spare blocks, which the
  // coming step takes, are never among them.
  std::span<const Block> expired_spares(uint64_t length, uint64_t taken,
                                        const GoneCounts* gone = nullptr) const;
  // Returns the ids of the blocks that expired_spares() depends on: whether each is shared.
  std::span<const uint32_t> ids_before_spares(uint64_t length) const {
    const uint64_t end = std::min<uint64_t>(group_.block_of(length) + 1, ids_.size());
    return std::span(ids_).first(end).last(std::min<uint64_t>(end, 2));
  }
  // Releases both early, because blocks are short.
  void release_expired(uint64_t length, uint64_t taken) noexcept;

  // ---- Other changes ----------------------------------------------------------------------------

  // Reserves memory for `more` entries, so that append() cannot fail. Throws bad_alloc.
  void reserve_entries(size_t more);
  // Appends blocks to the table and takes them over, into reserved memory. An entry may be no_block
  // if no token needs it, or dropped_block.
  void append(std::span<const Block> fresh) noexcept;
  // Releases the block of an entry and takes over another one, or no_block or dropped_block.
  void replace(size_t index, Block block) noexcept;
  // Drops the blocks of these entries, each of which is full. Entries without a block stay as they
  // are.
  void drop(std::span<const uint32_t> entries) noexcept;

  // Throws OUT_OF_RANGE if a sequence cut to `length` would not hold all that its next token sees.
  // `group` is the group's index, for the sentence.
  virtual void check_trim(size_t group, uint64_t length) const = 0;
  // Returns the longest length up to `length` that trim() can cut to.
  virtual uint64_t trim_point(uint64_t length) const = 0;
  // Releases every block beyond length and marks the last one filled up to it.
  virtual void trim(uint64_t length) noexcept;
  // Shares the first `length` positions of another table of the group with this empty one. Throws
  // LIMIT_REACHED or bad_alloc, and then this one stays empty.
  virtual void fork_from(const BlockTable& parent, uint64_t length);

  // Checks the invariants, and adds what the table holds to `references`, by block id. Only entries
  // from position `forgotten_from` on may be dropped. Throws INTERNAL.
  void validate(uint64_t length, uint64_t forgotten_from, std::span<uint64_t> references) const;

 protected:
  // Adds what the step in flight holds beside the table to `references`.
  virtual void count_step(std::span<uint64_t> references) const = 0;
  // Returns how many spare blocks suffice for steps from length to end, however they are cut.
  virtual uint64_t spares_needed(uint64_t length, uint64_t end, const GoneCounts* gone) const = 0;
  void release_expired_spares(uint64_t length, uint64_t taken) noexcept;
  // Puts another block into an entry and returns the one that was there.
  Block exchange(size_t index, Block block) noexcept;
  void release_block(Block block) noexcept;
  // Releases the blocks of all entries from `keep` on and removes these entries.
  void release_from(size_t keep) noexcept;
  bool shared(size_t index, const GoneCounts* gone = nullptr) const;
  size_t count_dropped(size_t begin, size_t end) const;

  Group& group_;
  NumberVector<Block> blocks_;
  NumberVector<uint32_t> ids_;
  size_t dropped_ = 0;  // see dropped()
  Spares spares_;
};

// The tables of one sequence, by group.
using Tables = std::span<const std::unique_ptr<BlockTable>>;

}  // namespace pkv::memory
