// Compares policies: by workload, capacity and policy, what hits save.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "blocks.h"

namespace pkv::serve {

// {"workload", "block_tokens", "asked_blocks", "distinct_blocks", "capacities", "rows": [{"policy",
// "blocks", "time", "tokens"}]}: blocks and time are shares of what was asked, by capacity in
// blocks; tokens are those that were found. No capacities: some that fit the trace. progress is
// called after each row.
nlohmann::json compare_policies(const Trace& trace, std::vector<uint64_t> capacities,
                                const std::function<void()>& progress);
std::string policy_table(const nlohmann::json& comparison);

}  // namespace pkv::serve
