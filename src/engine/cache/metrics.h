// The statistics of a cache in the text format of Prometheus.
#pragma once

#include <string>

#include "engine/cache/cache.h"

namespace pkv {

// Throws bad_alloc.
std::string format_metrics(const Cache& cache);

}  // namespace pkv
