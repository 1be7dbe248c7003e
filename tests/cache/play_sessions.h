// Operations on one session or snapshot.
#pragma once

#include "stage.h"

namespace cache_test {

inline Actor& pick(Stage& stage, Source& draw) {
  return *stage.actors[draw.below(stage.actors.size())];
}

inline void open_session(Stage& stage, Source& draw) {
  if (stage.actors.size() >= 8) return;
  auto config = made<pkv_session_config>({.priority = static_cast<int32_t>(draw.below(4)) - 1});
  pkv_session session;
  if (stage.attempt([&] { return pkv_session_open(stage.world.cache, &config, &session); }, PKV_OK))
    stage.add(session, {}, config.priority);
}

inline void close_session(Stage& stage, Source& draw) {
  stage.close(draw.below(stage.actors.size()));
}

inline void fork_session(Stage& stage, Source& draw) {
  const Actor& actor = pick(stage, draw);
  if (stage.actors.size() >= 8) return;
  pkv_session child;
  if (stage.attempt([&] { return pkv_session_fork(actor.session, &child); }, actor.obstacle()))
    stage.add(child, actor.naive.copy(), actor.priority);
}

// The block tables of a session.
inline std::array<std::vector<uint32_t>, 2> tables_of(const Actor& actor) {
  std::array<std::vector<uint32_t>, 2> tables;
  for (uint32_t group = 0; group < 2; group++) tables[group] = block_table(actor.session, group);
  return tables;
}

inline void take_snapshot(Stage& stage, Source& draw) {
  const Actor& actor = pick(stage, draw);
  if (stage.snapshots.size() >= 4) return;
  pkv_snapshot snapshot;
  if (!stage.attempt([&] { return pkv_snapshot_take(actor.session, &snapshot); }, actor.obstacle()))
    return;
  stage.snapshots.push_back(
      {Snapshot(snapshot), actor.naive.copy(), tables_of(actor), actor.priority});
  for (std::vector<uint32_t>& table : stage.snapshots.back().tables)
    table.resize(std::min<size_t>(table.size(), Stage::blocks_for(actor.naive.rows.size())));
}

// Opens a snapshot of this thread, or one that all threads share.
inline void open_snapshot(Stage& stage, Source& draw) {
  const size_t own = stage.snapshots.size(), all = own + stage.world.common.size();
  if (all == 0 || stage.actors.size() >= 8) return;
  const size_t i = draw.below(all);
  const Frozen& frozen = i < own ? stage.snapshots[i] : stage.world.common[i - own];
  pkv_session session;
  if (stage.attempt([&] { return pkv_snapshot_fork(frozen.snapshot, &session); }, PKV_OK))
    stage.add(session, frozen.naive, frozen.priority);
}

inline void close_snapshot(Stage& stage, Source& draw) {
  if (!stage.snapshots.empty()) stage.close_snapshot(draw.below(stage.snapshots.size()));
}

inline void trim(Stage& stage, Source& draw) {
  Actor& actor = pick(stage, draw);
  const uint64_t length = draw.below(actor.naive.rows.size() + 2);
  const pkv_status obstacle = actor.in_batch                     ? PKV_BUSY
                              : length > actor.naive.rows.size() ? PKV_OUT_OF_RANGE
                                                                 : PKV_OK;
  const pkv_status status =
      stage.run([&] { return pkv_session_trim(actor.session, length); }, obstacle);
  if (status == PKV_OUT_OF_RANGE && obstacle == PKV_OK && stage.world.setup.window != 0 &&
      length < actor.naive.trimmable)
    return;
  EXPECT_EQ(obstacle, status) << pkv_last_error();
  if (status != PKV_OK) return;
  actor.naive.trim(length);
}

inline void suspend(Stage& stage, Actor& actor) {
  stage.certain([&] { return pkv_session_suspend(actor.session); },
                actor.in_batch ? PKV_BUSY : PKV_OK);
  if (actor.in_batch) return;
  stage.counts.suspensions += !actor.naive.suspended;
  actor.naive.suspend();
}

inline void suspend_session(Stage& stage, Source& draw) { suspend(stage, pick(stage, draw)); }

// Resumes a session: mostly one that is suspended, if there is one.
inline void resume(Stage& stage, Source& draw) {
  size_t i = draw.below(stage.actors.size());
  const bool any = draw.chance(10);
  for (size_t n = 0; n < stage.actors.size() && !any && !stage.actors[i]->naive.suspended; n++)
    i = (i + 1) % stage.actors.size();
  Actor& actor = *stage.actors[i];
  uint64_t length, total;
  const pkv_status obstacle = actor.obstacle() == PKV_BUSY ? PKV_BUSY : PKV_OK;
  const uint64_t max_blocks = actor.naive.suspended ? Stage::blocks_for(actor.naive.total()) : 0;
  const pkv_status status =
      stage.run([&] { return pkv_session_resume(actor.session, &length, &total); }, obstacle);
  blocks_short_after(status);
  if (!stage.worked(status, obstacle, max_blocks)) return;
  actor.naive.has_run = actor.naive.has_run || actor.naive.suspended;
  actor.naive.suspended = false;
  ASSERT_EQ(actor.naive.rows.size(), length);
  ASSERT_EQ(actor.naive.total(), total);
}

inline void reserve(Stage& stage, Source& draw) {
  Actor& actor = pick(stage, draw);
  const uint64_t total = draw.below(max_tokens);
  if (actor.obstacle() == PKV_OK) actor.naive.expire();
  stage.attempt([&] { return pkv_session_reserve(actor.session, total); }, actor.obstacle(),
                Stage::blocks_for(total));
}

inline void set_priority(Stage& stage, Source& draw) {
  Actor& actor = pick(stage, draw);
  const int32_t priority = static_cast<int32_t>(draw.below(4)) - 1;
  stage.certain([&] { return pkv_session_set_priority(actor.session, priority); },
                actor.in_batch ? PKV_BUSY : PKV_OK);
  if (!actor.in_batch) actor.priority = priority;
}

// Sets token ids of positions that have none yet. All others must be refused.
inline void set_tokens(Stage& stage, Source& draw) {
  Actor& actor = pick(stage, draw);
  std::vector<int32_t>& own = actor.naive.tokens;
  const size_t first = draw.below(own.size() + 1),
               n = draw.below(std::min<size_t>(own.size() - first, 20) + 1);
  const bool wrong = draw.chance(20);
  pkv_status expected = actor.in_batch ? PKV_BUSY : PKV_OK;
  std::vector<int32_t> tokens(n);
  for (size_t i = 0; i < n; i++) {
    const int32_t before = own[first + i];
    tokens[i] = before == PKV_NO_TOKEN ? static_cast<int32_t>(draw.below(1000)) : before + wrong;
    if (expected == PKV_OK && before != PKV_NO_TOKEN && wrong) expected = PKV_INVALID_ARGUMENT;
  }
  stage.certain([&] { return pkv_session_set_tokens(actor.session, first, n, tokens.data()); },
                expected);
  if (expected == PKV_OK)
    std::copy(tokens.begin(), tokens.end(), own.begin() + static_cast<int64_t>(first));
}

}  // namespace cache_test
