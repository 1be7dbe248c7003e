// What the config of a cache says about its prefix index.
#pragma once

#include <pagedkv/prefix.h>

namespace pkv::prefix {

struct IndexOptions {
  pkv_eviction eviction;
  uint64_t max_pinned;  // in blocks; 0: the default
  uint64_t quota;       // of each salt, in blocks; 0: none
  uint32_t max_events;
  uint32_t block_size;
  // How much longer a token takes to compute than the one before it, relative to a text's first.
  double weight_per_token;
  pkv_clock clock;  // its function is NULL if the caller has none
};

}  // namespace pkv::prefix
