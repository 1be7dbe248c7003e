// Where the bytes of one layer group lie: sizes, offsets and the strides the kernels walk by.
//
//   packed  [block][layer][tile of 16 tokens][kv head][K tile | V tile]; a block is one run
//   plain   [layer]{ K [block][token][kv head][key_dim], V [block][token][kv head][value_dim] }
#pragma once

#include <pagedkv/cache.h>

#include "kernels/views.h"

namespace pkv::memory {

// The shape of the layers of a group.
struct Shape {
  uint32_t layers;
  uint32_t query_heads;
  uint32_t kv_heads;
  uint32_t key_dim;
  uint32_t value_dim;
  pkv_dtype dtype;  // of K
  pkv_dtype value_dtype;
  uint32_t window;  // 0: none
  uint32_t sinks;   // first tokens that stay visible behind the window
  bool latent;      // V is the first value_dim dims of K, without bytes of its own
};

class Layout {
 public:
  // Throws OVERFLOW where the sizes do not fit.
  Layout(pkv_layout kind, const Shape& shape, uint32_t block_size, uint64_t blocks);

  uint64_t token_bytes() const { return token_bytes_; }  // K and V of one token in all layers
  uint64_t block_bytes() const { return block_bytes_; }
  uint64_t total_bytes() const { return total_bytes_; }

  // The strides of one layer over memory that begins at slab; the block table is left to the
  // caller.
  kernels::KvView view(unsigned char* slab, uint32_t layer) const;

  // Copies all layers of a block.
  void copy_block(unsigned char* slab, uint32_t to, uint32_t from) const;

 private:
  const pkv_layout kind_;
  const Shape shape_;
  const uint32_t block_size_;
  const uint64_t blocks_;
  uint64_t token_bytes_, block_bytes_, total_bytes_;
  int64_t key_bytes_, value_bytes_;  // one head of one token (plain) or tile (packed)
};

// Strides of a growing tensor, [tokens][kv heads][dim], one for K and one for V.
kernels::KvView tensor_view(const Shape& shape, unsigned char* k, unsigned char* v);

}  // namespace pkv::memory
