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
  out.block_size = pool.block_size();
  out.blocks = stats.blocks;
  out.free = stats.free;
  out.used = stats.used;
  out.shared = stats.shared;
  out.retired = stats.retired;
  out.references = stats.references;
  out.slots_filled = stats.slots_filled;
  out.used_peak = stats.used_peak;
  return out;
}

}  // namespace pkv::api
