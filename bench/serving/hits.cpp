#include "hits.h"

#include "figures.h"
#include "policies/bound.h"
#include "policies/library.h"

namespace pkv::serve {

nlohmann::json hits_by_capacity(const Trace& trace) {
  const Blocks blocks = blocks_of_trace(trace);
  nlohmann::json result{{"block_tokens", blocks.tokens},
                        {"asked_blocks", blocks.asked.blocks},
                        {"distinct_blocks", blocks.distinct}};
  const auto share = [&](const Saved& saved) {
    return Figures::ratio(static_cast<double>(saved.blocks),
                          static_cast<double>(blocks.asked.blocks));
  };
  for (uint64_t capacity = 100; capacity < 4 * blocks.distinct; capacity *= 10)
    for (const uint64_t c : {capacity, 2 * capacity, 5 * capacity}) {
      if (c >= 2 * blocks.distinct) continue;
      result["capacities"].push_back(c);
      result["default"].push_back(share(replay_library(blocks, c, {})));
      result["lru"].push_back(share(replay_library(blocks, c, {PKV_EVICTION_LRU})));
      result["lfu"].push_back(share(replay_library(blocks, c, {PKV_EVICTION_LFU})));
      result["belady"].push_back(share(find_bound(blocks, c)));
    }
  return result;
}

}  // namespace pkv::serve
