// Plays random operations on a whole cache and compares it with a naive model. A test drives it by
// seeds and a fuzzer by bytes, from one thread or several.
#pragma once

#include "play_files.h"
#include "play_misuse.h"

namespace cache_test {

struct Operation {
  unsigned weight;
  void (*run)(Stage& stage, Source& draw);
};

inline constexpr Operation operations[] = {
    {8, open_session},   {4, close_session}, {22, batch},          {22, go_on},
    {14, step_one},      {8, fork_session},  {4, take_snapshot},   {4, open_snapshot},
    {2, close_snapshot}, {6, trim},          {3, suspend_session}, {5, resume},
    {2, reserve},        {2, set_priority},  {3, set_tokens},      {4, victims},
    {4, stale},          {1, foreign},       {4, beyond},          {4, save_and_load}};

// The number of input bytes that one operation takes. The first byte chooses the operation.
inline constexpr size_t operation_bytes = 16;

inline void operate(Stage& stage, Source draw) {
  static constexpr uint64_t weights = [] {
    uint64_t sum = 0;
    for (const Operation& operation : operations) sum += operation.weight;
    return sum;
  }();
  static_assert(weights <= 256);
  uint64_t choice = draw.below(weights);
  stage.refuse_allocation(draw.chance(10) ? draw.between(1, 20) : 0);
  if (stage.actors.empty()) return open_session(stage, draw);
  const Operation* operation = operations;
  while (choice >= operation->weight) choice -= (operation++)->weight;
  operation->run(stage, draw);
  stage.refuse_allocation(0);
}

// Compares the cache's statistics with the stages.
inline void compare_stats(const StagedCache& world,
                          const std::vector<std::unique_ptr<Stage>>& stages) {
  pkv_cache_stats expected{};
  for (const auto& stage : stages) {
    expected.sessions += static_cast<uint32_t>(stage->actors.size());
    expected.snapshots += static_cast<uint32_t>(stage->snapshots.size());
    expected.batches += static_cast<uint32_t>(stage->steps.size());
    for (const auto& actor : stage->actors) {
      expected.tokens += actor->naive.rows.size();
      expected.suspended_sessions += actor->naive.suspended;
    }
    expected.commits += stage->counts.commits;
    expected.committed_tokens += stage->counts.committed_tokens;
    expected.suspensions += stage->counts.suspensions;
  }
  const pkv_cache_stats stats = stats_of(world.cache);
  ASSERT_EQ(expected.sessions, stats.sessions);
  ASSERT_EQ(expected.snapshots + world.common.size(), stats.snapshots);
  ASSERT_EQ(expected.batches, stats.batches);
  ASSERT_EQ(expected.tokens, stats.tokens);
  ASSERT_EQ(expected.suspended_sessions, stats.suspended_sessions);
  ASSERT_EQ(expected.commits, stats.commits);
  ASSERT_EQ(expected.committed_tokens, stats.committed_tokens);
  ASSERT_EQ(expected.suspensions, stats.suspensions);
  const pkv_pool_stats pools = pool_stats_of(world.cache);
  ASSERT_EQ(pools.blocks, pools.free_blocks + pools.held_blocks);
  ASSERT_LE(stats.filled_slots, pools.held_blocks * block_size);
}

// Checks that all blocks of an empty cache are free.
inline void check_empty(const StagedCache& world) {
  CHECK(pkv_cache_validate(world.cache));
  EXPECT_EQ(2 * blocks, pool_stats_of(world.cache).free_blocks);
  EXPECT_EQ(0u, stats_of(world.cache).filled_slots);
}

inline void destroy(StagedCache& world) {
  world.cache.close();
  EXPECT_EQ(0, world.memory.live());
  EXPECT_TRUE(world.memory.sound());
}

// Plays on one thread.
class Play {
 public:
  // `header` makes the choices that are made once.
  Play(const Setup& setup, Source header, Source source)
      : source_(std::move(source)),
        world_(setup, header.chance(80)),
        destroys_open_(header.chance(50)) {
    stages_.push_back(std::make_unique<Stage>(world_, 1));
  }

  void operate() { cache_test::operate(stage(), source_.part(operation_bytes)); }

  void compare() {
    CHECK(pkv_cache_validate(world_.cache));
    stage().compare();
    compare_stats(world_, stages_);
  }

  // Ends everything: object by object, or by destroying the cache with everything open.
  void finish() {
    stage().compare_all();
    if (destroys_open_) {
      stage().forget_all();
    } else {
      stage().close_all();
      check_empty(world_);
    }
    destroy(world_);
    stage().check_dead();
  }

  const Counts& counts() const { return stage().counts; }
  bool spent() const { return source_.spent(); }

 private:
  Stage& stage() const { return *stages_[0]; }

  Source source_;
  StagedCache world_;
  std::vector<std::unique_ptr<Stage>> stages_;  // There is just one stage, the thread's own.
  const bool destroys_open_;
};

}  // namespace cache_test
