// One sequence in one layer group: its block table and, for contiguous storage, its tensors. Knows
// positions, not tokens.
//
// A step appends positions [length, end):
//   lacking() -> the caller takes that many blocks -> make_ready() -> begin() -> rows are written
//   -> commit() or abort()
// Invariants outside of a step:
//   table size >= ceil(length / block_size); entry i is current, or given back (it left the window)
//   entry i is filled to at least min(block_size, length - i * block_size)
// Every path on which a block is given back ends in release() or release_from().
#pragma once

#include <memory_resource>
#include <span>
#include <vector>

#include "engine/memory/group.h"
#include "engine/memory/tensors.h"

namespace pkv::memory {

class Sequence {
 public:
  Sequence(Group& group, std::pmr::memory_resource& memory);
  ~Sequence();  // releases every block
  Sequence(Sequence&& other) noexcept;
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  Group& group() const { return *group_; }
  std::span<const Block> blocks() const { return blocks_; }  // given-back entries are no_block
  std::span<const uint32_t> ids() const { return ids_; }     // the same as ids; PKV_NO_BLOCK
  uint64_t capacity() const { return blocks_.size() * uint64_t{group_->block_size}; }
  uint32_t copied_to() const { return ids_[copied_index_]; }  // where copied_from() is not no_block
  Block copied_from() const {
    return copied_from_;
  }  // the shared block a step in flight keeps for its abort, or no_block

  // Blocks begin() needs: new ones, and one for the copy of a part-filled tail that is shared.
  // Those behind the window that begin() uses again are none of them.
  uint64_t lacking(uint64_t length, uint64_t end) const;
  uint64_t lacking(uint64_t length, uint64_t end, bool copies) const;
  uint64_t lacking_new(uint64_t end) const;
  // The last block that a step writes into, and copies if it is shared; no_block: there is none.
  Block tail_written(uint64_t length, uint64_t end) const;

  // Throws TOO_LARGE where what a step of positions [length, end) sees and writes could not be held
  // even if every other sequence were gone.
  void check_fits(uint64_t length, uint64_t end, const char* who) const;
  // The same of positions [0, end), of which all are written in one step.
  void check_fits_whole(uint64_t end, const char* who) const;

  // Makes room for a step with so many fresh blocks. Throws bad_alloc, state as before.
  void make_ready(uint64_t end, size_t fresh);
  // Begins a step with lacking() fresh blocks, whose ownership passes, into room that was made.
  // True if it copied a shared tail.
  bool begin(uint64_t length, uint64_t end, std::span<const Block> fresh) noexcept;
  void commit(uint64_t length, uint64_t end) noexcept;
  void abort() noexcept;
  // After a commit of fewer tokens than begin was told: gives back the step's blocks beyond them.
  void drop_unused(uint64_t length) noexcept;

  // Makes room for more table entries and, where storage is contiguous, for positions up to end:
  // what follows cannot throw then.
  void make_room(size_t more, uint64_t end);
  // Takes over blocks for positions up to end, as many as lacking() said without a copy, and those
  // behind the window that it left out. Into room that was made for all of them: lacking_new().
  void extend(uint64_t length, uint64_t end, std::span<const Block> fresh) noexcept;
  // Takes over blocks that no step needs yet, into room that was made; no_block where one is behind
  // the window.
  void append(std::span<const Block> fresh) noexcept;
  // Takes over a fresh block with a copy of another one's first `filled` slots.
  void append_copy(Block fresh, Block from, uint32_t filled) noexcept;
  // Takes over another block with the same content in the place of one.
  void replace(size_t index, Block block) noexcept;

  // True if what a query at position `length` sees is still there.
  bool can_trim(uint64_t length) const;
  // Gives back every block beyond length; what stays is marked filled to it.
  void trim(uint64_t length) noexcept;
  void clear() noexcept;
  // Before a sequence is replaced from position 0 on: how many blocks it can keep for that, and
  // keeping at most `most` of them.
  uint64_t reusable() const;
  void rewind(uint64_t most) noexcept;

  // Fresh blocks fork() needs: none where blocks are shared.
  uint64_t lacking_fork(uint64_t length) const;
  // The same first `length` positions, for a new sequence. Throws REF_LIMIT, bad_alloc; takes over
  // fresh on success.
  Sequence fork(uint64_t length, std::span<const Block> fresh) const;

  // First position of the run that is still held at the end: 0 unless blocks left the window.
  uint64_t first_kept() const;
  // Blocks of the sinks, which never leave: entries [0, sink_blocks()), and never more than there
  // are.
  size_t sink_blocks() const;
  // True if positions [begin, end) are all held.
  bool holds(uint64_t begin, uint64_t end) const;
  // Slot of a position inside the capacity; -1 where the block left the window.
  int64_t slot(uint64_t position) const;
  // K and V of a layer for the kernels. Not for storage NONE.
  kernels::KvView view(uint32_t layer) const;

  // The first position that the token at position `length` sees.
  uint64_t window_begin(uint64_t length) const;

 private:
  uint64_t held(uint64_t first, uint64_t end) const;  // blocks of positions [first, end) and sinks
  bool fits(uint64_t first, uint64_t end) const;
  // Blocks behind the window of `length`, which wait for one more step: [late_begin, late_end).
  size_t late_begin() const;
  size_t late_end(uint64_t length) const;
  // How many of those a step can use again. 0 unless they must go for the step to fit at all.
  uint64_t reusable_late(uint64_t length, uint64_t end) const;
  void give_back_late(uint64_t length, uint64_t reused) noexcept;
  void copy_tail(uint64_t length, Block own) noexcept;
  void release(size_t index) noexcept;  // gives back entry index, which becomes no_block
  void release_from(
      size_t keep) noexcept;  // gives back all entries from there on, which are gone then
  void mark_filled(uint64_t begin,
                   uint64_t end) noexcept;  // of unshared blocks that overlap [begin, end]
  bool shared(size_t index) const;

  Group* group_;
  std::pmr::vector<Block> blocks_;
  std::pmr::vector<uint32_t> ids_;
  Tensors tensors_;  // empty unless CONTIGUOUS

  // The step in flight.
  size_t size_before_ = 0;
  size_t copied_index_ = 0;
  Block copied_from_;  // the shared tail that a private copy replaced; no_block: none
};

}  // namespace pkv::memory
