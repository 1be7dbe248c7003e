// The counters of pools as the C interface shows them. A pkv_pool and a layer group of a cache have
// the same ones, so pool.cpp and cache.cpp share this.
#pragma once

#include <pagedkv/stats.h>

#include "engine/memory/pool.h"

namespace pkv::api {

inline void add_stats(const memory::Pool& pool, pkv_pool_stats& sum) {
  const memory::PoolStats stats = pool.stats();
  sum.blocks += stats.blocks;
  sum.free_blocks += stats.free;
  sum.held_blocks += stats.held;
  sum.held_blocks_peak += stats.held_peak;
  sum.shared_blocks += stats.shared;
  sum.references += stats.references;
}

}  // namespace pkv::api
