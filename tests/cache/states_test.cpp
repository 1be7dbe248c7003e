// Layer groups that keep a state per session: what a step reads and writes, which states are held,
// and how sharing, trims, the prefix index, files and stores treat them. (The random machines of
// world_test.cpp and reserve_test.cpp have drafts, aborts and reservations of such groups.)
#include "../store/changed_tables.h"
#include "../support/hints.h"
#include "../support/memory_store.h"
#include "state_model.h"

namespace states {
namespace {

Text text(int32_t name, size_t n) {
  Text tokens(n);
  for (size_t i = 0; i < n; i++) tokens[i] = name * 100000 + static_cast<int32_t>(i);
  return tokens;
}

Text part(const Text& whole, size_t first, size_t n) {
  const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(n)};
}

uint64_t used(pkv_cache cache) { return pool_stats_of(cache, state_group).held_blocks; }

using Held = std::vector<uint64_t>;

TEST(States, AStepReadsTheStateBeforeItAndWritesTheOneAfter) {
  Cache cache = create({});
  Session session = open(cache);
  const Text whole = text(1, 100);
  for (const size_t n : {5, 11, 1, 30, 1, 1, 51}) {
    const size_t length = static_cast<size_t>(length_of(session));
    step(cache, {{session, part(whole, length, n)}});
    expect_holds(session, part(whole, 0, length + n));
    CHECK(pkv_cache_validate(cache));
  }
  EXPECT_EQ((Held{100}), held_states(session)) << "the last chunk jumped over 96";
}

TEST(States, ASessionHoldsItsLastStateAndTheOneAfterItsLastFullBlock) {
  Cache cache = create({});
  Session session = open(cache);
  const Text whole = text(1, 50);
  for (size_t i = 0; i < whole.size(); i++) step(cache, {{session, part(whole, i, 1)}});
  EXPECT_EQ((Held{48, 50}), held_states(session));
  EXPECT_EQ(2u, used(cache));
  expect_holds(session, whole);
}

TEST(States, ForksShareAStateUntilOneOfThemSteps) {
  Cache cache = create({});
  Session session = open(cache);
  const Text whole = text(1, 37);
  step(cache, {{session, whole}});
  Session child = fork(session);
  Snapshot snapshot = freeze(session);
  EXPECT_EQ(1u, used(cache));
  step(cache, {{session, text(2, 3)}, {child, text(3, 20)}});
  Session old = thaw(snapshot);
  expect_holds(old, whole);
  Text longer = whole;
  for (const int32_t id : text(2, 3)) longer.push_back(id);
  expect_holds(session, longer);
  EXPECT_EQ(3u, used(cache));
  CHECK(pkv_cache_validate(cache));
}

TEST(States, CheckpointsStayAndATrimGoesToTheLastOne) {
  Cache cache = create({.checkpoint_interval = 32});
  Session session = open(cache);
  const Text whole = text(1, 150);
  step(cache, {{session, part(whole, 0, 120)}});
  EXPECT_EQ((Held{32, 64, 96, 112, 120}), held_states(session));
  for (size_t i = 120; i < 150; i++) step(cache, {{session, part(whole, i, 1)}});
  EXPECT_EQ((Held{32, 64, 96, 128, 144, 150}), held_states(session));
  expect_holds(session, whole);

  uint64_t length = 0;
  CHECK(pkv_session_get_trim_point(session, 1000, &length));
  EXPECT_EQ(150u, length);
  CHECK(pkv_session_get_trim_point(session, 127, &length));
  EXPECT_EQ(0u, length) << "the window of the other group begins behind 96";
  REFUSED(PKV_OUT_OF_RANGE, pkv_session_trim(session, 143));
  EXPECT_NE(nullptr, std::strstr(pkv_last_error(), "the last one before is after 128"))
      << pkv_last_error();
  CHECK(pkv_session_get_trim_point(session, 149, &length));
  EXPECT_EQ(144u, length);
  CHECK(pkv_session_trim(session, length));
  expect_holds(session, part(whole, 0, 144));
  step(cache, {{session, part(whole, 144, 6)}});
  expect_holds(session, whole);
  CHECK(pkv_session_trim(session, 0));
  EXPECT_EQ(0u, used(cache));
  CHECK(pkv_cache_validate(cache));
}

TEST(States, WithoutDraftTokensOnlyAWholeStepCanBeAccepted) {
  Cache cache = create({});
  Session session = open(cache);
  Batch batch = begin(cache, {session}, {3});
  write_step(batch, {{session, text(1, 3)}}, 100);
  const uint32_t path[] = {0, 1, 2};
  REFUSED(PKV_UNSUPPORTED, pkv_batch_accept(batch, 0, 2, path));
  CHECK(pkv_batch_accept(batch, 0, 3, path));
  const Text ids = text(1, 3);
  commit(batch, ids);
  expect_holds(session, ids);
}

TEST(States, WhereBlocksAreShortTheStateOfTheLastFullBlockGivesWay) {
  Cache cache = create({.states = 4});
  Session a = open(cache), b = open(cache);
  for (int i = 0; i < 40; i++) {
    step(cache, {{a, {i}}, {b, {i}}});
    EXPECT_LE(used(cache), 4u);
    CHECK(pkv_cache_validate(cache));
  }
  Session c = open(cache);
  const pkv_session sessions[] = {a, b, c};
  const uint32_t ones[] = {1, 1, 1};
  pkv_batch batch;
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_batch_begin(cache, 3, sessions, ones, &batch));
  pkv_session victims[3];
  size_t count = 0;
  CHECK(pkv_batch_choose_victims(cache, 3, sessions, ones, 3, victims, &count));
  EXPECT_EQ(1u, count);
  EXPECT_EQ(c.get(), victims[0]);
}

// A resume reserves room for steps of any sizes, but no more than there is.
TEST(States, WhatRanInAPoolIsResumedInIt) {
  for (const uint32_t watermark : {0u, 2u}) {
    Cache cache = create({.states = 10, .checkpoint_interval = 16, .watermark = watermark});
    Session session = open(cache);
    const Text whole = text(1, 16 * (9 - watermark));
    for (const int32_t token : whole) step(cache, {{session, {token}}});
    for (const size_t chunk : {1, 5, 16, 33, 200}) {
      CHECK(pkv_session_suspend(session));
      uint64_t length = 99, total = 0;
      CHECK(pkv_session_resume(session, &length, &total));
      EXPECT_EQ(0u, length);
      for (size_t at = 0; at < whole.size(); at += chunk)
        step(cache, {{session, part(whole, at, std::min(chunk, whole.size() - at))}});
      expect_holds(session, whole);
      CHECK(pkv_cache_validate(cache));
    }
  }
}

TEST(States, ReservedBlocksCountAsThoseOfTheSession) {
  Cache cache = create({.blocks = 64, .states = 6});
  Session first = open(cache), idle = open(cache);
  CHECK(pkv_session_reserve(idle, 16));
  EXPECT_EQ(4u, info_of(idle).blocks) << "a block of each group with K and V, and two states";
  EXPECT_EQ(4u, info_of(idle).exclusive_blocks);
  const std::vector<Session> others = [&] {
    std::vector<Session> opened;
    for (int i = 0; i < 4; i++) {
      opened.push_back(open(cache));
      step(cache, {{opened.back(), text(i, 1)}});
    }
    return opened;
  }();
  const pkv_session session = first;
  const uint32_t one = 1;
  pkv_session victim;
  size_t count = 0;
  CHECK(pkv_session_set_priority(idle, -1));
  CHECK(pkv_batch_choose_victims(cache, 1, &session, &one, 1, &victim, &count));
  ASSERT_EQ(1u, count);
  EXPECT_EQ(idle.get(), victim);
  CHECK(pkv_session_suspend(victim));
  step(cache, {{first, text(9, 1)}});
}

TEST(States, AMatchEndsWhereAStateIsCached) {
  Cache cache = create({.prefix = true});
  const Text whole = text(1, 100);
  {
    Session session = open(cache);
    step(cache, {{session, part(whole, 0, 64)}});
    step(cache, {{session, part(whole, 64, 30)}});
    step(cache, {{session, part(whole, 94, 6)}});
  }
  CHECK(pkv_cache_validate(cache));
  Session session = open(cache);
  uint64_t matched = 0;
  CHECK(pkv_session_admit(session, whole.size(), whole.data(), 0, &matched));
  EXPECT_EQ(64u, matched) << "the step from 64 to 94 left no state after 80";
  expect_holds(session, part(whole, 0, 64));
  step(cache, {{session, part(whole, 64, 32)}});
  step(cache, {{session, part(whole, 96, 4)}});
  expect_holds(session, whole);
  session.close();
  Session again = open(cache);
  CHECK(pkv_session_admit(again, whole.size(), whole.data(), 0, &matched));
  EXPECT_EQ(96u, matched);
  expect_holds(again, part(whole, 0, 96));
  CHECK(pkv_cache_validate(cache));
}

// While a text is generated it leaves a state after every block. These must not evict the state at
// the end of the prompt, where other texts continue.
TEST(States, TheStateOfAPromptOutlivesThoseOfWhatFollowedIt) {
  Cache cache = create({.states = 8, .prefix = true});
  const Text prompt = text(1, 64);
  uint64_t matched = 0;
  for (int32_t round = 0; round < 3; round++) {
    Session session = open(cache);
    CHECK(pkv_session_admit(session, prompt.size(), prompt.data(), 0, &matched));
    EXPECT_EQ(round == 0 ? 0u : 64u, matched);
    if (matched == 0) step(cache, {{session, prompt}});
    Text whole = prompt;
    for (const int32_t id : text(2 + round, 250)) {
      step(cache, {{session, {id}}});
      whole.push_back(id);
    }
    expect_holds(session, whole);
    CHECK(pkv_cache_validate(cache));
  }
}

TEST(States, SessionsComeBackFromAFile) {
  for (const bool prefix : {false, true}) {
    const Kind setup{.checkpoint_interval = 32, .prefix = prefix};
    Cache cache = create(setup);
    const Text whole = text(1, 90);
    Session a = open(cache);
    step(cache, {{a, part(whole, 0, 80)}});
    Session b = fork(a);
    step(cache, {{a, part(whole, 80, 10)}, {b, text(5, 40)}});
    auto config = made<pkv_file_config>({.prefix_index = prefix});
    const store::Bytes file = store::save(cache, std::vector<pkv_session>{a, b}, &config);
    Cache other = create(setup);
    const std::vector<Session> loaded = store::load(other, file, &config);
    ASSERT_EQ(2u, loaded.size());
    expect_holds(loaded[0], whole);
    EXPECT_EQ(held_states(a), held_states(loaded[0]));
    Text second = part(whole, 0, 80);
    for (const int32_t id : text(5, 40)) second.push_back(id);
    expect_holds(loaded[1], second);
    CHECK(pkv_cache_validate(other));
    step(other, {{loaded[0], {1}}});

    Cache wider = create({.state_bytes = 101});
    REFUSED(PKV_MISMATCH, store::try_load(wider, store::buffer(file), &config));
    EXPECT_NE(nullptr,
              std::strstr(pkv_last_error(), "bytes of a layer in a block: 100, the cache 101"))
        << pkv_last_error();
  }
}

TEST(States, AFileWithAnyByteOfItsTablesChanged) {
  const Kind setup{.checkpoint_interval = 32, .prefix = true};
  const Cache cache = create(setup);
  const Session session = open(cache);
  step(cache, {{session, text(1, 80)}});
  auto config = made<pkv_file_config>({.prefix_index = 1});
  const store::Bytes file = store::save(cache, std::vector<pkv_session>{session}, &config);
  const store::ChangedTables counts =
      store::load_changed_tables(file, config, [&] { return create(setup); });
  EXPECT_GT(counts.refused, 100u);
  EXPECT_GT(counts.taken, 100u) << "a token, a label, a priority";
}

TEST(States, SessionsComeBackFromAStore) {
  for (const bool keyed : {false, true}) {
    MemoryStore memory;
    pkv_store table = memory.table();
    auto config = made<pkv_store_config>({.store = &table});
    const char key[] = "sixteen bytes or more";
    if (keyed) config.secret_key = key, config.secret_key_size = sizeof key;
    Cache cache = create({.prefix = true, .store = &config});
    const Text whole = text(1, 100);
    {
      Session session = open(cache);
      step(cache, {{session, part(whole, 0, 96)}});
      step(cache, {{session, part(whole, 96, 4)}});
    }
    flush_store(cache);
    CHECK(pkv_prefix_clear(cache, nullptr, PKV_ALL_SALTS));
    EXPECT_EQ(0u, used(cache));
    uint64_t cached = 0;
    prefetch(cache, whole);
    CHECK(pkv_prefetch_wait(cache, TextArg(whole), 60000, &cached, nullptr));
    EXPECT_EQ(96u, cached);
    Session session = open(cache);
    uint64_t matched = 0;
    CHECK(pkv_session_admit(session, whole.size(), whole.data(), 0, &matched));
    EXPECT_EQ(96u, matched);
    expect_holds(session, part(whole, 0, 96));
    CHECK(pkv_cache_validate(cache));
  }
}

TEST(States, WithStorageNoneTheEngineKeepsThemByBlock) {
  Cache cache = create({.storage = PKV_STORAGE_EXTERNAL});
  Session session = open(cache);
  std::vector<State> slab(64, State(100));
  const Text whole = text(1, 40);
  for (size_t at = 0; at < whole.size(); at += 8) {
    Batch batch = begin(cache, {session}, {8});
    uint32_t before = 0, token = 0, after = 0, indptr[2];
    size_t count = 0;
    CHECK(
        pkv_batch_get_state_blocks(batch, state_group, &before, indptr, 1, &token, &after, &count));
    ASSERT_EQ(1u, count);
    EXPECT_EQ(7u, token);
    EXPECT_EQ(at == 0, before == PKV_NO_BLOCK_ID);
    State state(100);
    for (size_t i = 0; i < 8; i++)
      next_state(i > 0                       ? state.data()
                 : before == PKV_NO_BLOCK_ID ? nullptr
                                             : slab[before].data(),
                 1, whole[at + i], state);
    slab[after] = state;
    const void* pointers[1];
    void* to[1];
    REFUSED(PKV_UNSUPPORTED, pkv_batch_get_states(batch, 1, pointers, 1, to, &count));
    commit(batch, std::span(whole).subspan(at, 8));
  }
  const std::vector<uint32_t> table = block_table(session, state_group);
  EXPECT_EQ(state_of(whole, 1, 100), slab[table.back()]);
}

void make_step(pkv_cache cache, pkv_session session, uint32_t tokens) {
  Batch batch = begin(cache, {session}, {tokens});
  commit(batch);
}

// Accepts a path of a draft of 4 tokens, and checks that the session then ends with the state after
// the last of them. Returns what accept returns.
pkv_status accept_path(pkv_cache cache, pkv_session session, uint32_t group,
                       const std::vector<uint32_t>& path) {
  const uint64_t length = length_of(session);
  Batch batch = begin(cache, {session}, {4});
  uint32_t before = 0, tokens[4], after[4], indptr[2];
  size_t count = 0;
  CHECK(pkv_batch_get_state_blocks(batch, group, &before, indptr, 4, tokens, after, &count));
  EXPECT_EQ(4u, count);
  const pkv_status status = pkv_batch_accept(batch, 0, path.size(), path.data());
  if (status != PKV_OK) return status;
  commit(batch);
  EXPECT_EQ(length + path.size(), length_of(session));
  EXPECT_EQ(path.empty() ? before : after[path.back()], block_table(session, group).back());
  CHECK(pkv_cache_validate(cache));
  return status;
}

TEST(States, WithStorageNoneADraftKeepsItsFirstTokens) {
  Cache cache = create({.max_verify_tokens = 4, .storage = PKV_STORAGE_EXTERNAL});
  Session session = open(cache);
  make_step(cache, session, 20);
  for (const std::vector<uint32_t>& path :
       std::vector<std::vector<uint32_t>>{{0, 1}, {}, {0}, {0, 1, 2, 3}, {0, 1, 2}})
    CHECK(accept_path(cache, session, state_group, path));
  for (const std::vector<uint32_t>& path : std::vector<std::vector<uint32_t>>{{1}, {0, 2}})
    REFUSED(PKV_UNSUPPORTED, accept_path(cache, session, state_group, path));
}

TEST(States, WithStorageNoneAndOnlyStatesADraftKeepsAnyPath) {
  Cache cache =
      cache_test::create(SmallCache{.groups = {{.state_bytes = 8, .max_verify_tokens = 4}},
                                    .blocks = 16,
                                    .prefix = false,
                                    .storage = PKV_STORAGE_EXTERNAL});
  Session session = open(cache);
  make_step(cache, session, 20);
  for (const std::vector<uint32_t>& path :
       std::vector<std::vector<uint32_t>>{{0, 2}, {3}, {}, {0, 1}, {1, 3}})
    CHECK(accept_path(cache, session, 0, path));
}

TEST(States, CallsForKeysAndValuesAreRefused) {
  Cache cache = create({});
  Session session = open(cache);
  step(cache, {{session, text(1, 20)}});
  Rows rows(1, 1, 16);
  const pkv_tensor tensor = rows.tensor();
  pkv_kv_view view{};
  view.struct_size = sizeof view;
  REFUSED(PKV_UNSUPPORTED, pkv_cache_get_kv_view(cache, 1, &view));
  REFUSED(PKV_UNSUPPORTED, pkv_session_read(session, 1, 0, 1, &tensor, &tensor));
  int64_t slot;
  size_t count;
  State state(100);
  REFUSED(PKV_UNSUPPORTED, get_state(session, full_layer, 20, state));
  REFUSED(PKV_OUT_OF_RANGE, get_state(session, 1, 21, state));
  REFUSED(PKV_OUT_OF_RANGE, get_state(session, 1, 0, state));
  REFUSED(PKV_OUT_OF_RANGE, get_state(session, 4, 20, state));
  REFUSED(PKV_INVALID_ARGUMENT, pkv_session_get_state(session, 1, 20, 99, state.data()));
  Batch batch = begin(cache, {session}, {1});
  REFUSED(PKV_UNSUPPORTED, pkv_batch_write(batch, 1, &tensor, &tensor));
  REFUSED(PKV_UNSUPPORTED, pkv_batch_attend(batch, 1, nullptr, &tensor, &tensor, nullptr));
  REFUSED(PKV_UNSUPPORTED, pkv_batch_get_slot_mapping(batch, state_group, 1, &slot, &count));
  const void* before;
  void* after;
  REFUSED(PKV_UNSUPPORTED, pkv_batch_get_states(batch, full_layer, &before, 1, &after, &count));
  REFUSED(PKV_BUFFER_TOO_SMALL, pkv_batch_get_states(batch, 1, &before, 0, nullptr, &count));
  EXPECT_EQ(1u, count);
  const int32_t id = 1;
  REFUSED(PKV_INCOMPLETE, pkv_batch_commit(batch, 1, &id));
  EXPECT_NE(nullptr, std::strstr(pkv_last_error(), "layer 0 of 4 was not written"));
}

// A step is one longer than the room for its states, or none of them can ever fit.
TEST(States, AStepThatCanNeverFitIsTooLarge) {
  Cache cache = create({.states = 4, .max_verify_tokens = 8});
  Session session = open(cache);
  const uint32_t four = 4, five = 5;
  const pkv_session handle = session;
  pkv_batch batch;
  REFUSED(PKV_TOO_LARGE, pkv_batch_begin(cache, 1, &handle, &five, &batch));
  CHECK(pkv_batch_begin(cache, 1, &handle, &four, &batch));
  CHECK(pkv_batch_abort(batch));
}

}  // namespace
}  // namespace states
