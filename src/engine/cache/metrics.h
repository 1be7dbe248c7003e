// The figures of a cache as Prometheus text.
#pragma once

#include <string>

#include "engine/cache/cache.h"

namespace pkv {

std::string format_metrics(const Cache& cache, const pkv_cache_stats& stats);

}  // namespace pkv
