// The statistics of a cache in the text format of Prometheus.
#pragma once

#include <string>

#include "engine/cache/cache.h"

namespace pkv {

// `stats` must be complete: the API fills in what the cache does not know, the open objects. Throws
// bad_alloc.
std::string format_metrics(const Cache& cache, const pkv_cache_stats& stats);

}  // namespace pkv
