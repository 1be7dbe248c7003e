// Which blocks of prompts are found cached, one request at a time: with the library's index, with
// the rules of other engines, and with a policy that knows the future.
#pragma once

#include <pagedkv/pagedkv.h>

#include "blocks.h"

namespace pkv::serve {

// The library's own index.
struct LibraryPolicy {
  pkv_eviction eviction = PKV_EVICTION_LEARNED;
  bool weighs_time = false;  // saves prefill time, not blocks
  bool hints = false;        // texts have hints of when they continue
};
Saved replay_library(const Blocks& blocks, uint64_t capacity, const LibraryPolicy& policy);

// Other engines, simulated from their rules. They have no quotas: their tenants share the cache.

// vLLM: a queue of the blocks that no request uses. A request that ends puts its blocks behind the
// others, its last block first; a hit takes blocks out of the queue; new blocks are taken from its
// front.
Saved replay_vllm(const Blocks& blocks, uint64_t capacity);

// SGLang: a radix tree whose leaves are evicted as a whole, in an order that the user chooses
// (--radix-eviction-policy).
enum class SglangOrder { lru, lfu, slru, fifo };
Saved replay_sglang(const Blocks& blocks, uint64_t capacity, SglangOrder order);

// The most that any policy can find.
Saved find_bound(const Blocks& blocks, uint64_t capacity);

}  // namespace pkv::serve
