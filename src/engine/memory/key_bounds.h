// Bounds of the keys of full blocks: for each block, layer and KV head the largest and the smallest
// value of each dim, by which attention chooses the blocks that may matter to a query (Tang et al.
// 2024). They bound the keys as stored (rotated, if the group rotates) and are rounded outwards to
// bf16.
//
// They are computed from the stored keys when they are first needed, so it does not matter how the
// keys came: written, loaded, or copied by a kernel of the caller's. Bounds belong to a generation
// of a block and become invalid when the block is allocated again. Code that writes again to a
// block that was full, after a trim, must call forget().
//
// They lie as [layer][KV head][block][largest, smallest][dim].
#pragma once

#include <atomic>
#include <memory_resource>
#include <span>
#include <vector>

#include "engine/memory/block_state.h"
#include "engine/memory/layout.h"
#include "engine/memory/slab.h"
#include "kernels/kernels.h"

namespace pkv::memory {

// Computes the bounds of `count` keys of a sequence, from position `first` on, for one KV head: the
// largest element of each dim, then the smallest. `keys` has room for count * key_dim.
void compute_bounds(const kernels::Table& kernels, kernels::KvView kv, uint64_t first,
                    uint32_t count, uint32_t head, float* keys, uint16_t* bounds) noexcept;

class KeyBounds {
 public:
  // Throws OUT_OF_MEMORY, OVERFLOW, bad_alloc.
  KeyBounds(const Layout& layout, const Shape& shape, uint32_t block_size, uint32_t blocks,
            HookMemory& memory, pkv_huge_pages huge_pages);

  // Returns the bounds of all blocks in one layer for one KV head; block b begins at b * 2 * dim.
  const uint16_t* of(uint32_t layer, uint32_t head) const { return at(layer, head, 0); }
  uint64_t bytes() const { return slab_.size(); }

  // Returns true if the caller must compute() the bounds of a block in a layer; false if they
  // exist, or if another thread is computing them.
  bool claim(Block block, uint32_t layer) noexcept;
  // Computes the bounds of a block that was claimed. `keys` has room for block_size * key_dim.
  void compute(const kernels::Table& kernels, unsigned char* slab, Block block, uint32_t layer,
               float* keys) noexcept;
  // Releases a claim, unless the bounds are computed.
  void unclaim(Block block, uint32_t layer) noexcept;
  bool has(Block block, uint32_t layer) const noexcept;
  // Forgets the bounds of a block that is about to be written and has no other references.
  void forget(uint32_t id) noexcept;

 private:
  uint16_t* at(uint32_t layer, uint32_t head, uint32_t id) const;
  std::atomic<uint64_t>& state(Block block, uint32_t layer) {
    return states_[uint64_t{layer} * blocks_ + block_id(block)];
  }

  const Layout& layout_;
  const Shape& shape_;
  const uint32_t block_size_;
  const uint64_t blocks_;
  const Slab slab_;
  // By layer and block: the generation whose bounds these are, times 2, and 1 more while they are
  // being computed. 0: there are none.
  std::pmr::vector<std::atomic<uint64_t>> states_;
};

}  // namespace pkv::memory
