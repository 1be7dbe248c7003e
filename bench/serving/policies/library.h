// The library's own index, one request at a time.
#pragma once

#include <pagedkv/pagedkv.h>

#include "blocks.h"

namespace pkv::serve {

struct LibraryPolicy {
  pkv_eviction eviction = PKV_EVICTION_LEARNED;
  bool weighs_time = false;  // prefill time, not blocks
  bool hints = false;        // is told when texts are expected to continue
};

Saved replay_library(const Blocks& blocks, uint64_t capacity, const LibraryPolicy& policy);

}  // namespace pkv::serve
