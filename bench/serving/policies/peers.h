// How others evict, simulated from their rules, one request at a time. They have no quotas: their
// tenants share the cache.
#pragma once

#include "blocks.h"

namespace pkv::serve {

// vLLM: a queue of the blocks that no request uses. A request that ends puts its blocks behind the
// others, its last one first; a hit takes blocks out of the queue; what is needed is taken from its
// front.
Saved replay_vllm(const Blocks& blocks, uint64_t capacity);

// SGLang: a radix tree whose leaves are evicted as a whole, in an order that is chosen
// (--radix-eviction-policy).
enum class SglangOrder { lru, lfu, slru, fifo };
Saved replay_sglang(const Blocks& blocks, uint64_t capacity, SglangOrder order);

}  // namespace pkv::serve
