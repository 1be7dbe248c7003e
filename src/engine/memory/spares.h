// Blocks in no table that are reserved for later steps of one sequence in one layer group: for the
// states that these steps write, or for the copy of a shared tail.
#pragma once

#include <memory_resource>
#include <span>

#include "base/vectors.h"
#include "engine/memory/pool.h"

namespace pkv::memory {

class Spares {
 public:
  Spares(Pool& pool, std::pmr::memory_resource& memory) : pool_(pool), blocks_(&memory) {}
  ~Spares() { keep(0); }
  Spares(const Spares&) = delete;
  Spares& operator=(const Spares&) = delete;

  std::span<const Block> blocks() const { return blocks_; }
  size_t count() const { return blocks_.size(); }
  // Returns up to which length blocks are reserved; 0 if none are.
  uint64_t reserved_to() const { return reserved_to_; }

  // Reserves memory for `more` blocks. Throws bad_alloc.
  void ensure_capacity(size_t more) { reserve_more(blocks_, more); }
  // Takes over blocks, into reserved memory, so that steps up to `end` have enough.
  void add(std::span<const Block> fresh, uint64_t end) noexcept;
  // Releases all blocks but the first `count`. With the last one the reservation ends.
  void keep(size_t count) noexcept;

  // Call this at the beginning of a step.
  void begin_step() noexcept { before_step_ = blocks_.size(); }
  // Returns a block for the step: a spare one, or the first one of `fresh` if there is none.
  Block take(std::span<const Block>& fresh) noexcept;
  // Takes back what take() returned for a step that is aborted.
  void put_back(Block block) noexcept { put(block, before_step_); }
  // Takes over a block that its table does not need any more. It becomes a spare one if blocks are
  // reserved and no other reference to it is left.
  void recycle(Block block) noexcept { put(block, reserved_to_ > 0 ? blocks_.capacity() : 0); }

 private:
  // Keeps an unshared block if there are fewer than `limit`, or releases it.
  void put(Block block, size_t limit) noexcept;

  Pool& pool_;
  NumberVector<Block> blocks_;
  uint64_t reserved_to_ = 0;
  size_t before_step_ = 0;  // how many there were before the step in flight
};

}  // namespace pkv::memory
