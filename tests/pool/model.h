// A naive model of a pool, for one thread: a map from the id of a block to its state.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "engine/memory/block_state.h"
#include "engine/memory/pool.h"

namespace pkv::memory {

class PoolModel {
 public:
  PoolModel(uint32_t blocks, uint32_t first_generation) {
    for (uint32_t id = 0; id < blocks; id++) states_[id] = {first_generation, 0, 0};
  }

  const std::map<uint32_t, BlockState>& states() const { return states_; }

  bool is_free(uint32_t id) const {
    return states_.at(id).references == 0 && states_.at(id).generation != retired_generation;
  }

  // Takes over a block that the pool chose. Returns false if the pool was not free to choose it.
  bool take(Block block) {
    if (!states_.contains(block_id(block)) || !is_free(block_id(block))) return false;
    BlockState& state = states_.at(block_id(block));
    state.references = 1;
    peak_ = std::max(peak_, stats().held);
    return state.generation == block_generation(block);
  }

  pkv_status check(Block block, pkv_status stale) const {
    const auto found = states_.find(block_id(block));
    if (found == states_.end()) return PKV_OUT_OF_RANGE;
    return found->second.generation == block_generation(block) && found->second.references > 0
               ? PKV_OK
               : stale;
  }

  pkv_status retain(const std::vector<Block>& blocks, size_t* failed_at) {
    for (*failed_at = 0; *failed_at < blocks.size(); ++*failed_at)
      if (const pkv_status status = check(blocks[*failed_at], PKV_NOT_HELD)) return status;
    for (Block block : blocks) states_.at(block_id(block)).references++;
    return PKV_OK;
  }

  pkv_status release(const std::vector<Block>& blocks, size_t* failed_at) {
    for (*failed_at = 0; *failed_at < blocks.size(); ++*failed_at)
      if (const pkv_status status = check(blocks[*failed_at], PKV_NOT_HELD)) return status;
    if (std::set<Block>(blocks.begin(), blocks.end()).size() < blocks.size()) return PKV_NOT_HELD;
    for (Block block : blocks) {
      BlockState& state = states_.at(block_id(block));
      if (--state.references == 0) state = {state.generation + 1, 0, 0};
    }
    return PKV_OK;
  }

  bool set_filled(Block block, uint32_t filled) {
    if (check(block, PKV_NOT_HELD) != PKV_OK || states_.at(block_id(block)).references > 1)
      return false;
    states_.at(block_id(block)).filled = filled;
    return true;
  }

  PoolStats stats() const {
    PoolStats stats{};
    for (const auto& [id, state] : states_) {
      stats.blocks++;
      if (state.generation == retired_generation)
        stats.retired++;
      else if (state.references == 0)
        stats.free++;
      else
        stats.held++;
      if (state.references > 1) stats.shared++;
      stats.references += state.references;
      stats.filled_slots += state.filled;
    }
    stats.held_peak = peak_;
    return stats;
  }

 private:
  std::map<uint32_t, BlockState> states_;
  uint64_t peak_ = 0;
};

}  // namespace pkv::memory
