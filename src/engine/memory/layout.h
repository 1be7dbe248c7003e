// Where the bytes of one layer group lie in memory: sizes, and the strides by which the kernels
// find K and V. The layouts are
//
//   packed  [block][layer][tile of 16 tokens][kv head][K tile | V tile], so a block is contiguous
//   packed by heads, in a file
//           [block][layer][kv head][tile of 16 tokens][K tile | V tile], so what a KV head reads of
//           a block is contiguous
//   plain   [layer]{ K [block][token][kv head][key_dim], V [block][token][kv head][value_dim] }
//
// A group of states has neither: its blocks are [layer][state, padded to a cache line]. Of an
// opaque group, whose blocks only the engine can read, just the size of a block is known.
#pragma once

#include <pagedkv/cache.h>

#include "engine/memory/rotation.h"
#include "kernels/views.h"

namespace pkv::memory {

// Storage begins at a multiple of a cache line, which the widest vector register is as wide as.
inline constexpr size_t storage_alignment = 64;

// The most heads that a model can have.
inline constexpr uint32_t max_heads = 65536;

// The most bytes that a block of an opaque group can have, in a cache as in a file.
inline constexpr uint64_t max_opaque_block_bytes = uint64_t{1} << 40;

// The shape that all layers of a group have in common.
struct Shape {
  pkv_layer_kind kind;
  uint32_t layers;
  uint32_t query_heads;
  uint32_t kv_heads;
  uint32_t key_dim;
  uint32_t value_dim;
  pkv_dtype dtype;  // of K
  pkv_dtype value_dtype;
  uint32_t window;  // 0 if every token sees all tokens before it
  uint32_t sinks;   // how many first tokens stay visible when the window has passed them
  Rotations rotations;

  // Of states and of opaque groups; heads, dims and dtypes are 0 then.
  uint64_t layer_bytes;          // of a layer in a block
  uint32_t checkpoint_interval;  // a state is kept at each multiple of it; 0: no checkpoints
  uint32_t max_verify_tokens;    // a step of at most this many tokens keeps the state after each

  // V is the first value_dim dims of K and has no bytes of its own.
  bool latent() const { return kind == PKV_LAYERS_LATENT; }
  bool has_states() const { return kind == PKV_LAYERS_STATES || kind == PKV_LAYERS_OPAQUE_STATES; }
  // Only the engine can read the bytes of the blocks.
  bool opaque() const { return kind == PKV_LAYERS_OPAQUE_KV || kind == PKV_LAYERS_OPAQUE_STATES; }
};

// Returns the bytes that a state of one layer takes in a block. Throws OVERFLOW.
uint64_t padded_state_bytes(const Shape& shape);

class Layout {
 public:
  // block_stride: from one block to the next, if they lie farther apart than their bytes; 0: they
  // do not. Only packed blocks and states may. by_heads: packed blocks are packed by heads. Throws
  // OVERFLOW if the bytes of all blocks exceed 2^63 - 1.
  Layout(pkv_layout kind, const Shape& shape, uint32_t block_size, uint64_t blocks,
         uint64_t block_stride = 0, bool by_heads = false);

  // K and V of one token in all layers; 0 for states, which do not grow with the tokens.
  uint64_t token_bytes() const { return token_bytes_; }
  uint64_t block_bytes() const { return block_bytes_; }
  uint64_t total_bytes() const { return total_bytes_; }

  // Returns the view that kernels need of one layer in memory that begins at slab. The caller sets
  // the block table in it.
  kernels::KvView view(unsigned char* slab, uint32_t layer) const;

  // Returns the state of one layer in a block of a group of states.
  unsigned char* state(unsigned char* slab, uint32_t block, uint32_t layer) const {
    return slab + block * block_stride_ + layer * (block_bytes_ / shape_.layers);
  }

  // Copies K and V of all layers from one block to another.
  void copy_block(unsigned char* slab, uint32_t to, uint32_t from) const;

 private:
  const pkv_layout kind_;
  const Shape shape_;
  const uint32_t block_size_;
  const uint64_t blocks_;
  const bool by_heads_;
  uint64_t token_bytes_ = 0, block_bytes_, block_stride_, total_bytes_;
  int64_t key_bytes_ = 0, value_bytes_ = 0;  // of one head of one token (plain) or tile (packed)
};

}  // namespace pkv::memory
