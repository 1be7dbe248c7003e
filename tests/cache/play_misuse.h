// Operations that must be refused and change nothing: with handles that are closed or belong to
// another cache, or with positions and layers that do not exist.
#pragma once

#include <functional>

#include "play_batches.h"

namespace cache_test {

template <class T>
T any_of(const std::vector<T>& list, Source& draw, T otherwise) {
  return list.empty() ? otherwise : list[draw.below(list.size())];
}

// Calls a function with a session, batch or snapshot that is closed or never existed.
inline void stale(Stage& stage, Source& draw) {
  const pkv_cache cache = stage.world.cache;
  const uint64_t forged =
      reinterpret_cast<uint64_t>(cache) ^ (uint64_t{1} << 63 | draw.below(UINT32_MAX));
  const pkv_session session =
      any_of(stage.dead_sessions, draw, reinterpret_cast<pkv_session>(forged));
  const pkv_batch batch = any_of(stage.dead_batches, draw, reinterpret_cast<pkv_batch>(forged));
  const pkv_snapshot snapshot =
      any_of(stage.dead_snapshots, draw, reinterpret_cast<pkv_snapshot>(forged));
  const uint32_t one = 1;
  int32_t token = 7;
  uint64_t number = 7;
  size_t count = 7;
  pkv_session made = session;
  pkv_batch begun = batch;
  pkv_snapshot taken = snapshot;
  float row[value_dim * heads] = {};
  const pkv_tensor tensor{row, PKV_F32, 0, 0, 0};
  const std::function<pkv_status()> calls[] = {
      [&] { return pkv_session_get_length(session, &number); },
      [&] { return pkv_session_get_tokens(session, 0, 1, &token); },
      [&] { return pkv_session_trim(session, 0); },
      [&] { return pkv_session_fork(session, &made); },
      [&] { return pkv_session_suspend(session); },
      [&] { return pkv_session_resume(session, &number, &number); },
      [&] { return pkv_session_reserve(session, 1); },
      [&] { return pkv_session_set_tokens(session, 0, 1, &token); },
      [&] { return pkv_session_read(session, 0, 0, 1, &tensor, &tensor); },
      [&] { return pkv_session_close(session); },
      [&] { return pkv_snapshot_take(session, &taken); },
      [&] { return pkv_snapshot_fork(snapshot, &made); },
      [&] { return pkv_snapshot_close(snapshot); },
      [&] { return pkv_batch_begin(cache, 1, &session, &one, &begun); },
      [&] { return pkv_batch_choose_victims(cache, 1, &session, &one, 1, &made, &count); },
      [&] { return pkv_batch_write(batch, 0, &tensor, &tensor); },
      [&] { return pkv_batch_attend(batch, 0, nullptr, &tensor, &tensor, nullptr); },
      [&] { return pkv_batch_accept(batch, 0, 1, &one); },
      [&] { return pkv_batch_commit(batch, 1, &token); },
      [&] { return pkv_batch_abort(batch); }};
  REFUSED(PKV_STALE_HANDLE, calls[draw.below(std::size(calls))]());
  EXPECT_TRUE(token == 7 && number == 7 && count == 7 && made == session && begun == batch &&
              taken == snapshot);
}

// Calls a function with a session of another cache.
inline void foreign(Stage& stage, Source& draw) {
  stage.refuse_allocation(0);
  const Actor& own = pick(stage, draw);
  ModelConfig config = config_of({}, 2, PKV_STORAGE_NONE);
  config.threads = 1;
  const Cache other = create(config);
  const Session session = open(other);
  const uint32_t one = 1;
  pkv_batch batch = nullptr;
  pkv_session made = nullptr;
  size_t count = 7;
  const pkv_session foreign = session, mine = own.session;
  const std::function<pkv_status()> calls[] = {
      [&] { return pkv_batch_begin(stage.world.cache, 1, &foreign, &one, &batch); },
      [&] {
        return pkv_batch_choose_victims(stage.world.cache, 1, &foreign, &one, 1, &made, &count);
      },
      [&] { return pkv_batch_begin(other, 1, &mine, &one, &batch); }};
  const size_t i = draw.below(std::size(calls));
  REFUSED(i == 2 && own.in_batch ? PKV_BUSY : PKV_WRONG_CACHE,
          stage.run(calls[i], i == 2 && own.in_batch ? PKV_BUSY : PKV_OK));
  EXPECT_TRUE(batch == nullptr && made == nullptr && count == 7);
}

// Asks for positions, layers, groups and sessions of a batch beyond the end, by a little or by a
// lot.
inline void beyond(Stage& stage, Source& draw) {
  stage.refuse_allocation(0);
  const Actor& actor = pick(stage, draw);
  const pkv_session session = actor.session;
  const uint64_t more = draw.chance(50) ? draw.between(1, 16) : UINT64_MAX - draw.below(max_tokens);
  const uint32_t layer = static_cast<uint32_t>(draw.chance(50) ? layers + draw.below(16)
                                                               : UINT32_MAX - draw.below(16)),
                 group = layer - layers + 2;
  const uint64_t length = actor.naive.rows.size(), end = actor.naive.total();
  int32_t token = 7;
  int64_t slot = 7;
  uint64_t number = 7;
  size_t count = 7;
  float row[value_dim * heads] = {7};
  const pkv_tensor tensor{row, PKV_F32, 0, 0, 0};
  struct Case {
    pkv_status expected;
    std::function<pkv_status()> call;
  };
  const pkv_status writes = actor.in_batch ? PKV_BUSY : PKV_OUT_OF_RANGE,
                   rows = stage.world.has_rows() ? PKV_OUT_OF_RANGE : PKV_UNSUPPORTED;
  std::vector<Case> cases = {
      {PKV_OUT_OF_RANGE, [&] { return pkv_session_get_tokens(session, end, 1, &token); }},
      {PKV_OUT_OF_RANGE,
       [&] { return pkv_session_get_tokens(session, end + 1 > more ? end + 1 : more, 0, &token); }},
      {PKV_OUT_OF_RANGE,
       [&] { return pkv_session_get_block_table(session, group, 0, nullptr, &count); }},
      {PKV_OUT_OF_RANGE, [&] { return pkv_session_read(session, layer, 0, 1, &tensor, nullptr); }},
      {rows, [&] { return pkv_session_read(session, 0, UINT64_MAX - 7, 8, &tensor, nullptr); }},
      {writes, [&] { return pkv_session_set_tokens(session, length, 1, &token); }},
      {writes,
       [&] { return pkv_session_trim(session, length + more < length ? more : length + more); }},
      {writes, [&] { return pkv_session_set_tokens(session, UINT64_MAX, 1, &token); }}};
  if (!stage.steps.empty()) {
    Step& step = *stage.steps[draw.below(stage.steps.size())];
    cases.push_back(
        {PKV_OUT_OF_RANGE, [&] { return pkv_batch_write(step.batch, layer, &tensor, &tensor); }});
    cases.push_back(
        {PKV_OUT_OF_RANGE,
         [&] { return pkv_batch_attend(step.batch, layer, nullptr, &tensor, &tensor, nullptr); }});
    cases.push_back({PKV_OUT_OF_RANGE, [&] {
                       return pkv_batch_accept(step.batch, step.members.size(), 0, nullptr);
                     }});
    cases.push_back({PKV_OUT_OF_RANGE, [&] {
                       return pkv_batch_get_slot_mapping(step.batch, group, 0, nullptr, &count);
                     }});
    cases.push_back({PKV_OUT_OF_RANGE, [&] {
                       return pkv_batch_get_block_copies(step.batch, group, 0, nullptr, nullptr,
                                                         &count);
                     }});
  }
  const Case& chosen = cases[draw.below(cases.size())];
  REFUSED(chosen.expected, stage.run(chosen.call, chosen.expected));
  EXPECT_TRUE(token == 7 && slot == 7 && number == 7 && count == 7 && row[0] == 7);
}

}  // namespace cache_test
