// Predicts how many blocks a step takes from the pools of a cache without an index, or lacks.
#pragma once

#include <map>
#include <numeric>

#include "world_model.h"

namespace world {

class Admission {
 public:
  // A step of some talks. counts: the number of new tokens of each.
  Admission(const SmallCache& kind, const Place& place, const std::vector<Talk>& talks,
            const std::vector<Frozen>& frozen, const std::vector<std::unique_ptr<Step>>& steps,
            const std::vector<pkv_session>& sessions, const std::vector<uint32_t>& counts)
      : kind_(kind), place_(place), talks_(talks), frozen_(frozen), steps_(steps) {
    if (kind.prefix || kind.shared || kind.has_states()) return;
    for (size_t i = 0; i < sessions.size(); i++)
      for (const Talk& talk : talks)
        if (talk.session == sessions[i]) step_.emplace_back(&talk, counts[i]);
    for (uint32_t g = 0; g < kind.groups.size(); g++) {
      if (kind.groups[g].window != 0) continue;
      const std::vector<uint64_t> taken = blocks_taken(g);
      needed_.push_back(std::accumulate(taken.begin(), taken.end(), uint64_t{0}));
      for (size_t i = 0; i < taken.size(); i++)
        if (!step_[i].first->has_run && taken[i] > 0) watermark_ = kind.watermark;
      free_.push_back(pool_stats_of(place.cache, g).free_blocks);
      spares_.push_back(spares_not_needed(g));
      groups_.push_back(g);
    }
  }

  // Compares the prediction with what begin() returned just now, and took.
  void check(pkv_status status) const {
    uint64_t lacking = 0;
    for (size_t i = 0; i < groups_.size(); i++) {
      if (status == PKV_OK) {
        const uint64_t before = pool_stats_of(place_.cache, groups_[i]).free_blocks + needed_[i];
        EXPECT_TRUE(before == free_[i] || before == free_[i] + spares_[i]) << before;
      }
      const uint64_t wanted = needed_[i] == 0 ? 0 : needed_[i] + watermark_;
      lacking += wanted - std::min(wanted, free_[i] + spares_[i]);
    }
    if (groups_.empty() || (status != PKV_OK && status != PKV_OUT_OF_BLOCKS)) return;
    if (status == PKV_OK) {
      EXPECT_EQ(0u, lacking);
    } else if (groups_.size() == kind_.groups.size()) {
      EXPECT_EQ(lacking, pkv_last_error_details()->blocks_short);
    }
  }

 private:
  // The sessions of a step that write to one tail.
  struct Writers {
    uint32_t count = 0;
    uint64_t length = 0;  // of the longest one,
    size_t longest = 0;   // and its place in the step
  };

  static size_t blocks_for(uint64_t tokens) { return (tokens + 15) / 16; }

  // Returns how many blocks each session takes in a group without a window: what its table lacks,
  // and a copy of its tail if that is shared, unless that was reserved. If all holders of a tail
  // write to it, the longest one keeps it.
  std::vector<uint64_t> blocks_taken(uint32_t g) const {
    std::map<std::pair<size_t, uint32_t>, Writers> writers;  // by place in the table and block
    std::vector<uint64_t> lacking, copies(step_.size());
    for (size_t i = 0; i < step_.size(); i++) {
      const auto [talk, count] = step_[i];
      const uint64_t start = talk->text.size(), end = start + count;
      const std::vector<uint32_t> table = block_table(talk->session, g);
      lacking.push_back(blocks_for(end) - std::min(blocks_for(end), table.size()));
      const size_t tail = start / 16;
      if (end == start || tail >= table.size()) continue;
      Writers& of_tail = writers[{tail, table[tail]}];
      copies[i] = has_spare(*talk) ? 0 : 1;
      of_tail.count++;
      if (start >= of_tail.length) of_tail.length = start, of_tail.longest = i;
    }
    for (const auto& [tail, of_tail] : writers)
      if (holders(g, tail.first, tail.second) == of_tail.count) copies[of_tail.longest] = 0;
    for (size_t i = 0; i < lacking.size(); i++) lacking[i] += copies[i];
    return lacking;
  }

  // Returns how many sessions, snapshots and steps hold a block, which is entry `index` of a table.
  // A step holds the blocks that it replaced by copies.
  uint32_t holders(uint32_t g, size_t index, uint32_t block) const {
    uint32_t count = 0;
    const auto has = [&](const std::vector<uint32_t>& table) {
      return index < table.size() && table[index] == block;
    };
    for (const Talk& talk : talks_) count += has(block_table(talk.session, g));
    for (const Frozen& frozen : frozen_) count += has(frozen.tables[g]);
    for (const auto& step : steps_)
      for (const Member& member : step->members)
        count += has(member.tables[g]) || has(block_table(member.talk.session, g));
    return count;
  }

  // Returns whether a session has a block in each group that is reserved for the copy of its tail.
  static bool has_spare(const Talk& talk) {
    uint64_t held = 0;
    for (const std::vector<uint32_t>& table : tables_of(talk))
      held += static_cast<uint64_t>(std::count_if(
          table.begin(), table.end(), [](uint32_t id) { return id != PKV_NO_BLOCK_ID; }));
    return info_of(talk.session).blocks > held;
  }

  // Returns how many blocks the step can take from its own sessions: those that were reserved for
  // the copy of a tail that is no longer shared.
  uint64_t spares_not_needed(uint32_t g) const {
    uint64_t sum = 0;
    for (const auto& [talk, count] : step_) {
      const std::vector<uint32_t> table = block_table(talk->session, g);
      const size_t tail = talk->text.size() / 16;
      sum += has_spare(*talk) && (tail >= table.size() || holders(g, tail, table[tail]) == 1);
    }
    return sum;
  }

  const SmallCache& kind_;
  const Place& place_;
  const std::vector<Talk>& talks_;
  const std::vector<Frozen>& frozen_;
  const std::vector<std::unique_ptr<Step>>& steps_;
  std::vector<std::pair<const Talk*, uint32_t>> step_;
  std::vector<uint32_t> groups_;                  // those without a window,
  std::vector<uint64_t> needed_, free_, spares_;  // and their blocks
  uint64_t watermark_ = 0;
};

}  // namespace world
