// Compares policies of eviction by the blocks that they find and the time that this saves.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "blocks.h"

namespace pkv::serve {

// Returns {"workload", "block_tokens", "asked_blocks", "distinct_blocks", "capacities", "rows":
// [{"policy", "blocks", "time", "tokens"}]}: blocks and time are shares of all that is asked for,
// by capacity in blocks; tokens are those that were found. If capacities is empty, it takes some
// that fit the trace. It calls progress after each row.
nlohmann::json compare_policies(const Trace& trace, std::vector<uint64_t> capacities,
                                const std::function<void()>& progress);
std::string policy_table(const nlohmann::json& comparison);

// Returns {"block_tokens", "asked_blocks", "distinct_blocks", "capacities", "default", "lru",
// "belady"}: shares of asked blocks, by capacity in blocks.
nlohmann::json hits_by_capacity(const Trace& trace);

}  // namespace pkv::serve
