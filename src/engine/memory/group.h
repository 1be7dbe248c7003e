// The memory of one layer group: its layout, its pool of block ids and, with storage INTERNAL, the
// slab with the bytes of the blocks.
//
// In a group of states, a block holds one state of each layer. Entry i of a block table still
// stands for tokens [i * block_size, (i + 1) * block_size): it is the state after the last of these
// tokens that the sequence has.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "base/parallel.h"
#include "engine/memory/key_bounds.h"
#include "engine/memory/layout.h"
#include "engine/memory/pages.h"
#include "engine/memory/pool.h"
#include "engine/memory/slab.h"

namespace pkv::memory {

struct Group {
  // kind: of an opaque group, EXTERNAL. directory: where the file with the blocks is made; empty:
  // they are in memory. pages: NULL, or the memory that the groups share, which also determines
  // `block_stride`.
  Group(pkv_storage kind, pkv_layout layout_kind, const Shape& group_shape,
        uint32_t tokens_per_block, uint32_t blocks, uint64_t block_stride, HookMemory& resource,
        pkv_huge_pages huge_pages_of_slab, const std::string& directory, Pages* pages)
      : storage(kind),
        shape(group_shape),
        block_size(tokens_per_block),
        block_shift(std::has_single_bit(tokens_per_block) ? std::countr_zero(tokens_per_block)
                                                          : -1),
        memory(resource),
        huge_pages(huge_pages_of_slab),
        layout(layout_kind, group_shape, tokens_per_block, blocks, block_stride,
               !directory.empty()),
        pool(blocks, &resource) {
    if (pages != nullptr) {
      slab = pages->slab();
      pages->add_group(pool);
    } else if (storage == PKV_STORAGE_INTERNAL) {
      slab = std::make_shared<Slab>(layout.total_bytes(), resource, huge_pages, directory);
    }
  }

  // Returns the index of the block that a position is in. It avoids 64-bit division, which is slow
  // enough to be visible in the time of a step.
  uint64_t block_of(uint64_t position) const {
    if (block_shift >= 0) return position >> block_shift;
    return position <= UINT32_MAX ? static_cast<uint32_t>(position) / block_size
                                  : position / block_size;
  }
  // Returns how many blocks the first `tokens` positions need.
  uint64_t blocks_for(uint64_t tokens) const { return tokens == 0 ? 0 : block_of(tokens - 1) + 1; }
  // Returns the slot of a position inside its block.
  uint32_t offset_of(uint64_t position) const {
    return static_cast<uint32_t>(position - block_of(position) * block_size);
  }

  bool has_states() const { return shape.has_states(); }
  // Returns whether only the engine can read the bytes of the blocks, by the hooks of block_io.h.
  bool opaque() const { return shape.opaque(); }
  // Returns whether the library, and not the engine, has the keys and values of the group.
  bool keeps_rows() const { return !has_states() && storage != PKV_STORAGE_EXTERNAL; }
  // Returns whether block tables have holes, since sequences release blocks that their next token
  // does not need.
  bool sparse() const { return shape.window != 0 || has_states(); }
  // Returns whether the state after `tokens` tokens is a checkpoint, which a session keeps as long
  // as it has these tokens.
  bool is_checkpoint(uint64_t tokens) const {
    return shape.checkpoint_interval != 0 && tokens % shape.checkpoint_interval == 0;
  }

  const pkv_storage storage;
  const Shape shape;
  const uint32_t block_size;
  const int block_shift;  // log2 of block_size; -1 if it is not a power of two
  HookMemory& memory;
  const pkv_huge_pages huge_pages;
  const Layout layout;
  Pool pool;
  std::shared_ptr<Slab> slab;  // the bytes of the blocks; NULL unless storage is INTERNAL

  // Returns the bounds of keys by which blocks are chosen. The first call makes them. Needs a slab.
  // Throws OUT_OF_MEMORY, OVERFLOW, bad_alloc.
  KeyBounds& make_bounds();
  // Computes the bounds of these blocks in a layer, except those that are known already. Throws
  // what make_bounds() throws, and INVALID_ARGUMENT if a caller's runner skips tasks.
  void compute_bounds(Workers& workers, const kernels::Table& kernels, uint32_t layer,
                      std::span<const Block> blocks);
  // Returns the bounds, or NULL if they were never made.
  KeyBounds* bounds() const { return bounds_.load(std::memory_order_acquire); }

 private:
  std::atomic<KeyBounds*> bounds_{nullptr};
  std::mutex making_bounds_;
  std::unique_ptr<KeyBounds> own_bounds_;
};

// Adds a reference to each block of a block table, as Pool::retain_table() does. Throws
// LIMIT_REACHED.
void retain_table(Group& group, std::span<const Block> table);
// Throws UNSUPPORTED for a group of states, which has no K and V. `who` is the name of the call,
// for the error message.
void check_has_rows(const Group& group, const char* who);
// Does the same if the caller keeps K and V.
void check_keeps_rows(const Group& group, const char* who);
// Throws UNSUPPORTED for a group without states, or if the caller keeps the states.
void check_has_states(const Group& group, uint32_t layer);

// Returns the number of blocks of the largest pool.
inline uint64_t largest_pool(std::span<const std::unique_ptr<Group>> groups) {
  uint64_t blocks = 0;
  for (const auto& group : groups) blocks = std::max<uint64_t>(blocks, group->pool.blocks());
  return blocks;
}

}  // namespace pkv::memory
