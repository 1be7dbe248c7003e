// The block table of a sequence in a group of keys and values. Entries that left the window are
// released; a shared tail is copied before a step writes into it. A spare block beside the table is
// for that copy.
#pragma once

#include "engine/memory/block_table.h"

namespace pkv::memory {

class KvTable final : public BlockTable {
 public:
  KvTable(Group& group, std::pmr::memory_resource& memory) : BlockTable(group, memory) {}
  ~KvTable() override { drop_original(); }

  // The shared block that the step in flight replaced by a copy, or no_block if it copied none.
  Block copied_from() const { return copied_from_; }
  // The id of that copy. Valid only while copied_from() is not no_block.
  uint32_t copied_to() const { return ids_[copied_index_]; }

  StepNeed step_need(uint64_t length, uint64_t end) const override;
  uint64_t blocks_in_step(uint64_t length, uint64_t end) const override;
  void check_fits(uint64_t length, uint64_t end, const char* who) const override;
  void begin(uint64_t length, uint64_t end, bool copies,
             std::span<const Block> fresh) noexcept override;
  // Where the engine has the rows, nothing can move them: only the first new tokens can be kept.
  void check_keeps(std::span<const uint32_t> kept, uint32_t count) const override;
  void drop_original() noexcept override;
  void commit(uint64_t length, uint64_t end, std::span<const uint32_t> kept) noexcept override;
  void abort() noexcept override;
  Entries expired(uint64_t length) const override;
  void check_trim(size_t group, uint64_t length) const override;
  uint64_t trim_point(uint64_t length) const override;
  void trim(uint64_t length) noexcept override;

  // Calls visit(entry, first, last) for each block that attention of positions up to `end` reads,
  // with the positions [first, last) of it that it reads.
  template <class Visit>
  void for_each_read(uint64_t end, const Visit& visit) const {
    const uint64_t kept = std::min(first_kept(), end),
                   sinks = std::min<uint64_t>(group_.shape.sinks, kept);
    const auto visit_range = [&](uint64_t first, uint64_t to) {
      while (first < to) {
        const uint64_t entry = group_.block_of(first),
                       last = std::min(to, (entry + 1) * group_.block_size);
        if (ids_[entry] != PKV_NO_BLOCK_ID) visit(entry, first, last);
        first = last;
      }
    };
    visit_range(0, sinks);
    visit_range(kept, end);
  }
  // Returns whether this table holds all blocks of positions [begin, end).
  bool holds(uint64_t begin, uint64_t end) const;
  // Returns the slot of a position that the table has an entry for; -1 if its block left the window
  // or was dropped.
  int64_t slot(uint64_t position) const;
  // Returns K and V of a layer for the kernels. Not to be called for storage EXTERNAL.
  kernels::KvView view(uint32_t layer) const;

 private:
  void count_step(std::span<uint64_t> references) const override {
    if (copied_from_ != no_block) references[block_id(copied_from_)]++;
  }
  uint64_t spares_needed(uint64_t length, uint64_t end, const GoneCounts* gone) const override;
  bool can_trim(uint64_t length) const;
  // Returns how many entries at the beginning of the table hold sinks, which never leave.
  size_t sink_blocks() const;
  // Returns the end of the sinks that are held, where they are apart from the window.
  uint64_t sinks_end() const;
  // Returns how many blocks positions [first, end) and the sinks take.
  uint64_t blocks_to_hold(uint64_t first, uint64_t end) const;
  // Replaces the shared tail by a copy in `own` (copy on write).
  void copy_tail(uint64_t length, Block own) noexcept;
  // Tells the pool how far the unshared blocks from position begin on are filled, up to end.
  void mark_filled(uint64_t begin, uint64_t end) noexcept;

  // These describe the step in flight.
  size_t size_before_step_ = 0;  // of the block table
  size_t copied_index_ = 0;      // the entry of the copied tail
  Block copied_from_ = no_block;
};

}  // namespace pkv::memory
