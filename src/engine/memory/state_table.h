// The block table of a sequence in a group of states. It holds the state at the end of the
// sequence, the one after its last full block (for the prefix index and the store, and for a trim;
// it is released first when blocks are short), and checkpoints. Most other entries are no_block. A
// block counts as filled up to the token of its state.
//
// A step leaves the table alone until it commits: its new states are in blocks beside the table,
// one for each state that the step keeps. So nothing is ever copied, and two sequences never write
// to one state.
#pragma once

#include "engine/memory/block_table.h"

namespace pkv::memory {

// A state that a step writes: the one after this many of its new tokens.
struct NewState {
  uint32_t tokens;
  Block block;
};

class StateTable final : public BlockTable {
 public:
  StateTable(Group& group, std::pmr::memory_resource& memory)
      : BlockTable(group, memory), new_states_(&memory) {}
  ~StateTable() override { abort(); }

  // Returns the block with the state after `tokens` tokens; no_block if it is not held, or none.
  Block state_block(uint64_t tokens) const;
  // Returns the state of one layer in a block. Not to be called for storage EXTERNAL.
  unsigned char* state(Block block, uint32_t layer) const {
    return group_.layout.state(group_.slab->data(), block_id(block), layer);
  }
  // The states that the step in flight writes, in the order of its tokens.
  std::span<const NewState> new_states() const { return new_states_; }

  StepNeed step_need(uint64_t length, uint64_t end) const override;
  uint64_t blocks_in_step(uint64_t length, uint64_t end) const override;
  void check_fits(uint64_t length, uint64_t end, const char* who) const override;
  void ensure_capacity(const StepNeed& need, uint64_t end) override;
  void begin(uint64_t length, uint64_t end, bool copies,
             std::span<const Block> fresh) noexcept override;
  // The last token that stays must have a state, which becomes that of the sequence.
  void check_keeps(std::span<const uint32_t> kept, uint32_t count) const override;
  void commit(uint64_t length, uint64_t end, std::span<const uint32_t> kept) noexcept override;
  void abort() noexcept override;
  uint64_t length_to_share(uint64_t length) const override;
  // The state after the last full block.
  Entries expired(uint64_t length) const override;
  void check_trim(size_t group, uint64_t length) const override;
  uint64_t trim_point(uint64_t length) const override;

 private:
  void count_step(std::span<uint64_t> references) const override {
    for (const NewState& state : new_states_) references[block_id(state.block)]++;
  }
  // Returns how many states a step keeps.
  uint64_t count_states(uint64_t length, uint64_t end) const;
  // The most spare blocks that steps from length to end take: one per checkpoint, those that the
  // largest step writes, and one for the state before that step, unless the block of the state at
  // `length` comes back for it.
  uint64_t states_needed(uint64_t length, uint64_t end, const GoneCounts* gone) const;
  // Adds a block for the state after the last full block, which can give way, unless the pool could
  // never give it.
  uint64_t spares_needed(uint64_t length, uint64_t end, const GoneCounts* gone) const override;
  // Returns whether the block of a state becomes a spare one when the table lets go of it.
  bool comes_back(uint64_t tokens, const GoneCounts* gone = nullptr) const;
  // Takes over a block as the state after `tokens` tokens.
  void put_state(uint64_t tokens, Block block) noexcept;
  // Drops the state after `tokens` tokens from the table, if it is held.
  void drop_state(uint64_t tokens) noexcept;

  std::pmr::vector<NewState> new_states_;
};

}  // namespace pkv::memory
