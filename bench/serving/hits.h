// Which share of prompt blocks is found cached, by policy and capacity, with one request at a time;
// and the most that any policy could find.
#pragma once

#include <nlohmann/json.hpp>

#include "trace.h"

namespace pkv::serve {

// {"block_tokens", "asked_blocks", "distinct_blocks", "capacities", "default", "lru", "lfu",
// "belady"}: shares of asked blocks, by capacity in blocks.
nlohmann::json hits_by_capacity(const Trace& trace);

}  // namespace pkv::serve
