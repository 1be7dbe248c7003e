// The counters of a pool as the C interface shows them. A pkv_pool and a layer group of a cache
// have the same ones, so pool.cpp and cache.cpp share this.
#pragma once

#include <pagedkv/stats.h>

#include "engine/memory/pool.h"

namespace pkv::api {

inline pkv_pool_stats public_stats(const memory::Pool& pool) {
  const memory::PoolStats stats = pool.stats();
  pkv_pool_stats out{};
  out.struct_size = sizeof out;
  out.blocks = stats.blocks;
  out.free_blocks = stats.free;
  out.used_blocks = stats.used;
  out.shared_blocks = stats.shared;
  out.retired_blocks = stats.retired;
  out.references = stats.references;
  out.used_blocks_peak = stats.used_peak;
  return out;
}

}  // namespace pkv::api
