// A stage has the open objects of one thread in a cache, with the naive model of each. It makes the
// calls of an operation, some of which are refused memory, and compares all results with the model.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <thread>

#include "../support/memory.h"
#include "engine_memory.h"
#include "naive.h"

namespace cache_test {

struct Actor {
  Session session;
  Naive naive;
  int32_t priority = 0;
  uint64_t opened = 0;  // How many sessions this stage opened before it.
  bool in_batch = false;

  // Returns the status that calls which would add tokens must return.
  pkv_status obstacle() const {
    return in_batch ? PKV_BUSY : naive.suspended ? PKV_SUSPENDED : PKV_OK;
  }
};

struct Member {
  Actor* actor;
  uint32_t count;
  // Its first row in the batch.
  size_t row;
  // The block tables from before the step.
  std::array<std::vector<uint32_t>, 2> tables;
  std::optional<std::vector<uint32_t>> kept;
};

struct Step {
  Batch batch;
  std::vector<Member> members;
  std::vector<uint32_t> rows;
  uint32_t written = 0;
  bool accepted = false;
};

struct Frozen {
  Snapshot snapshot;
  Naive naive;
  std::array<std::vector<uint32_t>, 2> tables = {};
  int32_t priority = 0;
};

// Checks the details of the last call of this thread, which returned `status`. Returns how many
// blocks it lacked.
inline uint64_t blocks_short_after(pkv_status status) {
  if (status == PKV_OK) return 0;
  const pkv_error_details& details = *pkv_last_error_details();
  EXPECT_EQ(status, details.status);
  EXPECT_EQ(status == PKV_OUT_OF_BLOCKS, details.blocks_short > 0);
  EXPECT_EQ(status == PKV_OUT_OF_BLOCKS, details.group != UINT32_MAX);
  return details.blocks_short;
}

inline constexpr uint32_t all_written = (1u << layers) - 1;

// The state that all threads of one input share.
struct StagedCache {
  StagedCache(const Setup& chosen, bool hooks) : setup(chosen) {
    const auto matrices =
        made<pkv_rotation_matrices>({.key = key_rotation.data(), .value = value_rotation.data()});
    pkv_layer_group groups[2];
    for (pkv_layer_group& group : groups) {
      group = made<pkv_layer_group>();
      group.query_heads = group.kv_heads = heads;
      group.key_dim = key_dim;
      group.value_dim = value_dim;
      group.blocks = blocks;
      group.dtype = setup.dtype;
      if (setup.rotated) group.rotation_matrices = &matrices;
    }
    groups[0].layers = layers - 1;
    groups[1].layers = 1;
    groups[1].window = setup.window;
    groups[1].sink_tokens = setup.sinks;
    auto config = made<pkv_cache_config>({.group_count = 2,
                                          .groups = groups,
                                          .storage = setup.storage,
                                          .layout = setup.layout,
                                          .watermark_blocks = setup.watermark,
                                          .threads = 1});
    if (hooks) config.allocator = memory.allocator();
    cache = create(config);
  }

  bool has_rows() const { return setup.storage != PKV_STORAGE_NONE; }

  const Setup setup;
  memory::Hooks memory;
  Cache cache;
  // Snapshots that every thread may open.
  std::vector<Frozen> common;
  EngineMemory engine{2, blocks};  // the numbers of rows, with storage NONE
  // There is one thread. Then a refusal must be justified, and no call meets another.
  bool alone = true;
};

// The expected counts of one stage in the cache's statistics.
struct Counts {
  uint64_t commits = 0, committed_tokens = 0, suspensions = 0;
  // How often a session grew, or was short of blocks or of memory. Tests check that it happened.
  uint64_t grown = 0, refused = 0, no_memory = 0;
};

class Stage {
 public:
  Stage(StagedCache& shared, uint32_t first_row) : world(shared), next_row_(first_row) {}

  StagedCache& world;
  std::vector<std::unique_ptr<Actor>> actors;
  std::vector<std::unique_ptr<Step>> steps;
  std::vector<Frozen> snapshots;
  Counts counts;
  // The handles of objects that are closed.
  std::vector<pkv_session> dead_sessions;
  std::vector<pkv_batch> dead_batches;
  std::vector<pkv_snapshot> dead_snapshots;

  std::vector<uint32_t> fresh_rows(size_t n) {
    std::vector<uint32_t> rows(n);
    for (uint32_t& row : rows) row = next_row_++;
    return rows;
  }

  Actor& add(pkv_session session, Naive naive, int32_t priority) {
    actors.push_back(std::make_unique<Actor>());
    Actor& actor = *actors.back();
    actor.session = Session(session);
    actor.naive = std::move(naive);
    actor.priority = priority;
    actor.opened = opened_++;
    return actor;
  }

  // ---- Calls --------------------------------------------------------------------------------

  // Lets the k-th allocation of the next call fail. 0 lets none fail.
  void refuse_allocation(uint64_t k) { refuse_at_ = k; }

  // Makes a call, which should return `obstacle`. It is BUSY for a moment while another thread asks
  // for victims, and is then repeated.
  template <class Call>
  pkv_status run(const Call& call, pkv_status obstacle = PKV_OK) {
    const memory::Refusal refusal(std::exchange(refuse_at_, 0));
    for (;;) {
      const pkv_status status = call();
      struck_ = refusal.struck();
      if (status != PKV_BUSY || obstacle == PKV_BUSY || world.alone) return status;
      std::this_thread::yield();
    }
  }

  // Returns true if the call worked. It may be short of blocks where a group has fewer than
  // `max_blocks` of them, and short of memory where an allocation was refused.
  bool worked(pkv_status status, pkv_status obstacle = PKV_OK, uint64_t max_blocks = 0) {
    if (status == PKV_OUT_OF_MEMORY && struck_) {
      counts.no_memory++;
    } else if (obstacle != PKV_OK) {
      EXPECT_EQ(obstacle, status) << pkv_last_error();
    } else if (status == PKV_OUT_OF_BLOCKS || status == PKV_TOO_LARGE ||
               status == PKV_BATCH_TOO_LARGE) {
      counts.refused++;
      EXPECT_FALSE(world.alone && has(max_blocks)) << pkv_last_error();
    } else {
      EXPECT_EQ(PKV_OK, status) << pkv_last_error();
    }
    return status == PKV_OK;
  }

  template <class Call>
  bool attempt(const Call& call, pkv_status obstacle = PKV_OK, uint64_t max_blocks = 0) {
    const pkv_status status = run(call, obstacle);
    return worked(status, obstacle, max_blocks);
  }

  // Makes a call that needs no memory.
  template <class Call>
  void certain(const Call& call, pkv_status expected = PKV_OK) {
    EXPECT_EQ(expected, run(call, expected)) << pkv_last_error();
  }

  static uint64_t blocks_for(uint64_t tokens) { return (tokens + block_size - 1) / block_size; }
  // Returns how many blocks a step from `start` to `end` takes in a group at most, with the copy of
  // a shared tail.
  static uint64_t max_blocks_for(uint64_t start, uint64_t end) {
    return end == start ? 0 : blocks_for(end) - blocks_for(start) + 1;
  }

  // ---- Ends ---------------------------------------------------------------------------------

  void close(size_t index) {
    Actor& actor = *actors[index];
    const pkv_session session = actor.session;
    certain([&] { return pkv_session_close(session); }, actor.in_batch ? PKV_BUSY : PKV_OK);
    if (actor.in_batch) return;
    actor.session.forget();
    dead_sessions.push_back(session);
    actors.erase(actors.begin() + static_cast<int64_t>(index));
  }

  void close_snapshot(size_t index) {
    const pkv_snapshot snapshot = snapshots[index].snapshot;
    certain([&] { return pkv_snapshot_close(snapshot); });
    snapshots[index].snapshot.forget();
    dead_snapshots.push_back(snapshot);
    snapshots.erase(snapshots.begin() + static_cast<int64_t>(index));
  }

  // Forgets a batch that the library has ended.
  void drop(Step& step) {
    for (Member& member : step.members) member.actor->in_batch = false;
    dead_batches.push_back(step.batch);
    step.batch.forget();
    std::erase_if(steps, [&](const auto& other) { return other.get() == &step; });
  }

  // Aborts a step. Afterwards the sessions have the very same blocks as before, except those that
  // had left the window: begin() frees these if blocks are short.
  void abort(Step& step) {
    certain([&] { return pkv_batch_abort(step.batch); });
    for (const Member& member : step.members)
      for (uint32_t group = 0; group < 2; group++) {
        std::vector<uint32_t> before = member.tables[group];
        const std::vector<uint32_t> after = block_table(member.actor->session, group);
        for (size_t i = 0; group == 1 && i < std::min(before.size(), after.size()); i++)
          if (after[i] == PKV_NO_BLOCK && has_left_window(*member.actor, i)) before[i] = after[i];
        EXPECT_EQ(before, after);
      }
    drop(step);
  }

  void close_all() {
    refuse_at_ = 0;
    while (!steps.empty()) abort(*steps.back());
    while (!actors.empty()) close(actors.size() - 1);
    while (!snapshots.empty()) close_snapshot(snapshots.size() - 1);
  }

  // Forgets everything, because destroying the cache ends it.
  void forget_all() {
    while (!steps.empty()) drop(*steps.back());
    for (auto& actor : actors) dead_sessions.push_back(actor->session), actor->session.forget();
    for (Frozen& frozen : snapshots)
      dead_snapshots.push_back(frozen.snapshot), frozen.snapshot.forget();
    actors.clear();
    snapshots.clear();
  }

  void check_dead() const {
    for (const pkv_session session : dead_sessions)
      REFUSED(PKV_STALE_HANDLE, pkv_session_close(session));
    for (const pkv_batch batch : dead_batches) REFUSED(PKV_STALE_HANDLE, pkv_batch_abort(batch));
    for (const pkv_snapshot snapshot : dead_snapshots)
      REFUSED(PKV_STALE_HANDLE, pkv_snapshot_close(snapshot));
  }

  // ---- Comparison ---------------------------------------------------------------------------

  // Compares lengths, tokens and figures of every session, and the content of two of them, which
  // change from call to call.
  void compare() {
    for (const auto& actor : actors) check_session(*actor);
    for (size_t i = 0; i < std::min<size_t>(2, actors.size()); i++, turn_++)
      check_content(*actors[turn_ % actors.size()],
                    static_cast<uint32_t>(turn_ / actors.size() % layers));
  }

  void compare_all() {
    for (const auto& actor : actors) {
      check_session(*actor);
      for (uint32_t layer = 0; layer < layers; layer++) check_content(*actor, layer);
    }
  }

 private:
  // Returns whether no token that follows sees entry `i` of a block table of the second group.
  bool has_left_window(const Actor& actor, size_t i) const {
    const size_t window = world.setup.window, length = actor.naive.rows.size();
    return window > 0 && i * block_size >= world.setup.sinks &&
           (i + 1) * block_size <= length - std::min(length, window - 1);
  }

  bool has(uint64_t max_blocks) const {
    for (uint32_t group = 0; group < 2; group++)
      if (max_blocks > 0 &&
          pool_stats_of(world.cache, group).free_blocks < max_blocks + world.setup.watermark)
        return false;
    return true;
  }

  // Returns the rows of a step in flight that a layer holds already.
  std::vector<uint32_t> in_flight(const Actor& actor, uint32_t layer) const {
    for (const auto& step : steps)
      for (const Member& member : step->members)
        if (member.actor == &actor && (step->written >> layer & 1) && !step->accepted)
          return {step->rows.begin() + static_cast<int64_t>(member.row),
                  step->rows.begin() + static_cast<int64_t>(member.row + member.count)};
    return {};
  }

  void check_session(const Actor& actor) const {
    const Naive& naive = actor.naive;
    ASSERT_EQ(naive.rows.size(), length_of(actor.session));
    const std::vector<int32_t> expected = naive.all_tokens();
    std::vector<int32_t> ids(expected.size());
    CHECK(pkv_session_get_tokens(actor.session, 0, ids.size(), ids.data()));
    ASSERT_EQ(expected, ids);
    const pkv_session_info info = info_of(actor.session);
    ASSERT_EQ(naive.rows.size(), info.length);
    ASSERT_EQ(naive.total(), info.total);
    ASSERT_EQ(naive.suspended, info.suspended == 1);
    ASSERT_EQ(actor.priority, info.priority);
    ASSERT_LE(info.exclusive_blocks, info.blocks);
    uint64_t held = 0;
    for (uint32_t group = 0; group < 2; group++)
      for (const uint32_t id : block_table(actor.session, group)) held += id != PKV_NO_BLOCK;
    // Each group may have a block besides, which is reserved for the copy of a shared tail.
    ASSERT_LE(held, info.blocks);
    ASSERT_LE(info.blocks, held + 2);
  }

  void check_content(const Actor& actor, uint32_t layer) const {
    if (!world.has_rows()) return check_slots(actor, layer == layers - 1);
    const std::vector<uint32_t> fresh = in_flight(actor, layer);
    std::vector<uint32_t> rows = actor.naive.rows;
    rows.insert(rows.end(), fresh.begin(), fresh.end());
    const uint32_t window = world.setup.window_of(layer);
    const size_t kept = window == 0 ? actor.naive.rows.size()
                                    : std::min<size_t>(actor.naive.rows.size(), window - 1);
    check_rows(actor, layer, rows, actor.naive.rows.size() - kept, kept + fresh.size());
    if (window != 0)
      check_rows(actor, layer, rows, 0, std::min<size_t>(world.setup.sinks, rows.size()));
  }

  void check_rows(const Actor& actor, uint32_t layer, const std::vector<uint32_t>& rows,
                  size_t first, size_t count) const {
    Numbers k = room_for(count, false), v = room_for(count, true);
    const pkv_tensor keys = k.tensor(), values = v.tensor();
    CHECK(pkv_session_read(actor.session, layer, first, count, &keys, &values));
    const std::vector<uint32_t> expected(rows.begin() + static_cast<int64_t>(first),
                                         rows.begin() + static_cast<int64_t>(first + count));
    ASSERT_TRUE(k == rows_of(expected, layer, false)) << "keys of layer " << layer;
    ASSERT_TRUE(v == rows_of(expected, layer, true)) << "values of layer " << layer;
  }

  void check_slots(const Actor& actor, uint32_t group) const {
    if (actor.in_batch) return;  // The slots of a session in a batch include those of the step.
    const std::vector<uint32_t>& rows = actor.naive.rows;
    std::vector<uint64_t> found;
    for (const int64_t slot : slots_of(actor.session, rows.size(), group))
      if (slot >= 0) found.push_back(world.engine.at(group, slot));
    ASSERT_LE(found.size(), rows.size());
    if (world.setup.window == 0 || group == 0) {
      ASSERT_EQ(rows.size(), found.size());
    } else {
      ASSERT_GE(found.size() + 1, std::min<size_t>(world.setup.window, rows.size()));
    }
    ASSERT_TRUE(
        std::equal(found.begin(), found.end(), rows.end() - static_cast<int64_t>(found.size())))
        << "group " << group;
  }

  uint32_t next_row_;
  uint64_t refuse_at_ = 0, opened_ = 0;
  size_t turn_ = 0;
  bool struck_ = false;
};

}  // namespace cache_test
