// Which blocks of prompts are found cached, one request at a time: with the library's index,
// and with a policy that knows the future.
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

// The most that any policy can find.
Saved find_bound(const Blocks& blocks, uint64_t capacity);

}  // namespace pkv::serve
