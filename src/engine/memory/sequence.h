// One sequence in one layer group: its block table and, for contiguous storage, its tensors. A
// Sequence works with positions and does not see token ids; Content (engine/session) has those. It
// does not store its length either: callers pass it.
//
// A step appends positions [length, end) in this order:
//   1. step_need() says how many blocks the step needs, and the caller allocates them. The caller
//      also decides whether the step copies its tail, since that depends on who else writes.
//   2. make_room() reserves memory for the block table, and begin() puts the blocks into it.
//   3. The caller writes K and V of the new tokens.
//   4. drop_original() and commit(), or abort(), end the step.
//
// Two invariants hold outside of a step:
//   - The table has at least ceil(length / block_size) entries. Each entry is a block that this
//     sequence references, no_block if the block left the window and was released, or
//     dropped_block if the caller dropped it.
//   - The block of entry i is filled to at least min(block_size, length - i * block_size).
//
// In a group of states (sequence_states.cpp) a step leaves the table alone until it commits: its
// new states are in blocks beside the table, one for each state that the step keeps. So nothing is
// ever copied, and two sequences never write to one state. A block counts as filled up to the token
// of its state; most entries are no_block, since only checkpoints, the last full block and the tail
// are held.
//
// Blocks reserved for later steps are entries at the end of the table, and spare blocks beside it:
// for the states of these steps, or for the copy of a shared tail. step_need() returns how many
// spare blocks one step takes, and spares_needed() the most that any steps up to some length take;
// a commit keeps that many.
//
// Only release() and release_from() release the blocks of table entries.
#pragma once

#include <memory_resource>
#include <span>
#include <unordered_map>

#include "base/vectors.h"
#include "engine/memory/group.h"
#include "engine/memory/spares.h"
#include "engine/memory/tensors.h"

namespace pkv::memory {

// A state that a step writes: the one after this many of its new tokens.
struct NewState {
  uint32_t tokens;
  Block block;
};

// What a step, or a reservation, needs in one sequence.
struct StepNeed {
  uint64_t blocks;      // that the caller allocates
  uint64_t spares;      // spare blocks that the sequence must still have then
  bool copies = false;  // true if one of them replaces a shared tail
  bool begins = false;  // true if they are the first ones of the sequence
};

// By block id: how many references to a shared block a forecast counts as dropped.
using DroppedCounts = std::unordered_map<uint32_t, uint32_t>;

// Returns how many references to a block are left. dropped: NULL if none are.
inline uint32_t references_left(const Pool& pool, uint32_t id, const DroppedCounts* dropped) {
  const uint32_t all = pool.references(id);
  if (dropped == nullptr) return all;
  const auto gone = dropped->find(id);
  return gone == dropped->end() ? all : all - gone->second;
}

class Sequence {
 public:
  Sequence(Group& group, std::pmr::memory_resource& memory);
  ~Sequence();  // aborts a step that copied its tail, and releases every block
  Sequence(Sequence&& other) noexcept;
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  Group& group() const { return *group_; }
  // The block table; an entry is no_block if its block left the window, and dropped_block if it was
  // dropped.
  std::span<const Block> blocks() const { return blocks_; }
  // The ids of blocks(), with PKV_NO_BLOCK where there is no block.
  std::span<const uint32_t> ids() const { return ids_; }
  // Returns how many positions the table has entries for.
  uint64_t capacity() const { return blocks_.size() * uint64_t{group_->block_size}; }
  // The shared block that the step in flight replaced by a copy, or no_block if it copied none.
  Block copied_from() const { return copied_from_; }
  // The id of that copy. Valid only while copied_from() is not no_block.
  uint32_t copied_to() const { return ids_[copied_index_]; }
  // Blocks in no table, which are reserved for later steps.
  std::span<const Block> spare_blocks() const { return spares_.blocks(); }

  // Returns what a step of positions [length, end) needs. `copies`: it replaces a shared tail by a
  // copy.
  StepNeed step_need(uint64_t length, uint64_t end, bool copies) const;
  // Returns what to reserve so that steps up to `end` need no more blocks, however they are cut.
  StepNeed reserve_need(uint64_t length, uint64_t end) const;
  // Returns the part-filled last block, into which a step writes; no_block if the step begins with
  // a new block.
  Block tail_written(uint64_t length, uint64_t end) const;

  // Returns how many blocks a step of positions [length, end) reads and writes.
  uint64_t blocks_in_step(uint64_t length, uint64_t end) const;
  // Throws TOO_LARGE if the blocks that a step of positions [length, end) reads and writes exceed
  // the whole pool, so that it could not run even if this were the only sequence.
  void check_fits(uint64_t length, uint64_t end, const char* who) const;

  // Begins a step of positions [length, end). Takes over the fresh blocks, as many as the step
  // needs, after make_room(). Without `copies` the step writes into the tail itself; a tail that is
  // shared must then belong to this sequence alone once the other steps of the batch have dropped
  // theirs.
  void begin(uint64_t length, uint64_t end, bool copies, std::span<const Block> fresh) noexcept;
  // Releases the shared block that begin() replaced by a copy. Only commit() may follow.
  void drop_original() noexcept;
  // Ends the step: marks its blocks filled up to end, and releases blocks that left the window. All
  // steps of a batch must have dropped their originals before the first one commits. `kept` are the
  // new tokens that it keeps; the caller has moved their K and V. Empty: the first end - length.
  void commit(uint64_t length, uint64_t end, std::span<const uint32_t> kept) noexcept;
  // Undoes begin(): releases the blocks of the step and puts a copied tail back.
  void abort() noexcept;
  // Releases blocks of the step beyond `length`. To be called after a commit of fewer tokens than
  // begin() was told.
  void drop_unused(uint64_t length) noexcept;

  // Reserves memory for `more` table entries and, if storage is contiguous, for positions up to
  // end, so that appending cannot fail. In a group of states `more` are the blocks that a step will
  // get, unless end is 0. Throws bad_alloc.
  void make_room(size_t more, uint64_t end);
  // Does the same for add_reserved().
  void make_room_to_reserve(size_t more, uint64_t end);
  // Takes over the blocks that reserve_need() asked for, into reserved memory.
  void add_reserved(uint64_t length, uint64_t end, std::span<const Block> fresh) noexcept;
  // Releases the spare blocks, which ends what reserve_need() promised.
  void release_spares() noexcept { spares_.keep(0); }
  // Returns up to which length the blocks may be shared, so that what is reserved still suffices.
  uint64_t length_to_share(uint64_t length) const;
  // Appends blocks to the table and takes them over, into reserved memory. An entry may be no_block
  // if it is outside of the window, or dropped_block.
  void append(std::span<const Block> fresh) noexcept;
  // Appends a fresh block and copies the first `filled` slots of another block into it.
  void append_copy(Block fresh, Block from, uint32_t filled) noexcept;
  // Releases the block of an entry and takes over another block with the same content instead.
  void replace(size_t index, Block block) noexcept;

  // Expired entries left the window of the next token. commit() releases them one step late, so
  // that a trim back to the beginning of that step still works.
  struct Entries {
    size_t begin, end;
    bool contains(size_t index) const { return index >= begin && index < end; }
  };
  Entries expired(uint64_t length) const;
  // Returns the spare blocks that later steps do not need any more: nobody shares the tail now, or
  // would without the dropped references. The first `taken` ones are not among them.
  std::span<const Block> expired_spares(uint64_t length, uint64_t taken,
                                        const DroppedCounts* dropped = nullptr) const;
  // Releases expired entries and spares early, because blocks are short. Returns false if there are
  // none.
  bool release_expired(uint64_t length, uint64_t taken) noexcept;

  // Returns whether a sequence cut to `length` would still hold all that its next token sees.
  bool can_trim(uint64_t length) const;
  // Returns the longest length up to `length` that can_trim() to; 0 if there is no other.
  uint64_t trim_point(uint64_t length) const;
  // Returns how many entries are dropped_block.
  size_t dropped() const { return dropped_; }
  // Drops the blocks of these entries, each of which is full. Entries without a block stay as they
  // are.
  void drop(std::span<const uint32_t> entries) noexcept;
  // Releases every block beyond length and marks the last one filled up to it.
  void trim(uint64_t length) noexcept;
  // Releases all blocks and frees the tensors.
  void clear() noexcept;
  // Returns how many blocks the caller must allocate for fork(): 0 unless storage is contiguous,
  // since paged sequences share their blocks.
  uint64_t blocks_needed_to_fork(uint64_t length) const;
  // Returns a new sequence with the first `length` positions. Takes over the fresh blocks on
  // success. Throws REF_LIMIT or bad_alloc, and then the caller still owns them.
  Sequence fork(uint64_t length, std::span<const Block> fresh) const;

  // Returns the first position of the run at the end of the table that the window holds, dropped
  // blocks included: 0 unless blocks left the window.
  uint64_t first_kept() const;
  // Calls visit(entry, first, last) for each block that attention of positions up to `end` reads,
  // with the positions [first, last) of it that it reads.
  template <class Visit>
  void for_each_read(uint64_t end, const Visit& visit) const {
    const uint64_t kept = std::min(first_kept(), end),
                   sinks = std::min<uint64_t>(group_->shape.sinks, kept);
    const auto visit_range = [&](uint64_t first, uint64_t to) {
      while (first < to) {
        const uint64_t entry = group_->block_of(first),
                       last = std::min(to, (entry + 1) * group_->block_size);
        if (ids_[entry] != PKV_NO_BLOCK) visit(entry, first, last);
        first = last;
      }
    };
    visit_range(0, sinks);
    visit_range(kept, end);
  }
  // Returns how many entries at the beginning of the table hold sinks, which never leave.
  size_t sink_blocks() const;
  // Returns whether this sequence holds all blocks of positions [begin, end).
  bool holds(uint64_t begin, uint64_t end) const;
  // Returns the slot of a position below capacity(); -1 if its block left the window.
  int64_t slot(uint64_t position) const;
  // Returns K and V of a layer for the kernels. Not to be called for storage NONE.
  kernels::KvView view(uint32_t layer) const;

  // ---- Groups of states -------------------------------------------------------------------------

  // Returns the block with the state after `tokens` tokens; no_block if it is not held, or none.
  Block state_block(uint64_t tokens) const;
  // Returns the state of one layer in a block. Not to be called for storage NONE.
  unsigned char* state(Block block, uint32_t layer) const {
    return group_->layout.state(group_->slab->data(), block_id(block), layer);
  }
  // The states that the step in flight writes, in the order of its tokens.
  std::span<const NewState> new_states() const { return new_states_; }

 private:
  uint64_t sinks_end() const;
  // Returns how many entries the table lacks for positions up to end; 0 in a group of states, whose
  // table a commit extends.
  uint64_t entries_needed(uint64_t end) const;
  // Returns how many spare blocks suffice for steps from length to end, however they are cut.
  uint64_t spares_needed(uint64_t length, uint64_t end,
                         const DroppedCounts* dropped = nullptr) const;
  // Releases expired_spares(). Returns false if there are none.
  bool release_expired_spares(uint64_t length, uint64_t taken) noexcept;
  // Returns how many blocks positions [first, end) and the sinks take.
  uint64_t blocks_to_hold(uint64_t first, uint64_t end) const;
  // Returns whether the pool has the blocks of positions [0, end) at all, used or free.
  bool fits_whole(uint64_t end) const;
  // Replaces the shared tail by a copy in `own` (copy on write).
  void copy_tail(uint64_t length, Block own) noexcept;
  // Releases the block of an entry, which becomes `instead`.
  void release(size_t index, Block instead = no_block) noexcept;
  // Releases the blocks of all entries from `keep` on and removes these entries.
  void release_from(size_t keep) noexcept;
  // Tells the pool how far the unshared blocks from position begin on are filled, up to end.
  void mark_filled(uint64_t begin, uint64_t end) noexcept;
  bool shared(size_t index, const DroppedCounts* dropped = nullptr) const;
  size_t count_dropped(size_t begin, size_t end) const;

  // The same for groups of states; sequence_states.cpp has them.
  uint64_t count_states(uint64_t length, uint64_t end) const;
  uint64_t states_needed(uint64_t length, uint64_t end,
                         const DroppedCounts* dropped = nullptr) const;
  uint64_t states_to_reserve(uint64_t length, uint64_t end,
                             const DroppedCounts* dropped = nullptr) const;
  bool comes_back(uint64_t tokens, const DroppedCounts* dropped = nullptr) const;
  void check_states_fit(uint64_t length, uint64_t end, const char* who) const;
  void begin_states(uint64_t length, uint64_t end, std::span<const Block> fresh) noexcept;
  void commit_states(uint64_t length, uint64_t end, std::span<const uint32_t> kept) noexcept;
  void abort_states() noexcept;
  Entries expired_states(uint64_t length) const;
  void put_state(uint64_t tokens, Block block) noexcept;
  void drop_entry(uint64_t tokens) noexcept;

  Group* group_;
  NumberVector<Block> blocks_;
  NumberVector<uint32_t> ids_;
  size_t dropped_ = 0;  // entries that are dropped_block
  Tensors tensors_;     // empty unless storage is contiguous
  Spares spares_;

  // These describe the step in flight.
  size_t size_before_step_ = 0;            // of the block table
  size_t copied_index_ = 0;                // the entry of the copied tail
  Block copied_from_;                      // see copied_from()
  std::pmr::vector<NewState> new_states_;  // see new_states()
};

}  // namespace pkv::memory
