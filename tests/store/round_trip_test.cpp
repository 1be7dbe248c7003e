// Sessions are loaded with the same bits and shared blocks as saved, whatever kind of cache saves
// and loads them.
#include <algorithm>
#include <cstring>
#include <thread>

#include "../support/sanitizers.h"
#include "support.h"

namespace store::round_trip_test {
namespace {

const Plan plain_setup = {};

// Exchanges the two halves of rows of 16 dims.
const float* exchange() {
  static const std::vector<float> matrix = [] {
    std::vector<float> exchanged(256);
    for (size_t i = 0; i < 16; i++) exchanged[i * 16 + (i + 8) % 16] = 1;
    return exchanged;
  }();
  return matrix.data();
}

// Shapes whose tiles are whole, padded or odd, with sinks, windows, latent values and rotations.
std::vector<std::pair<const char*, Plan>> setups() {
  static const auto exchanged = made<pkv_rotation_matrices>({.key = exchange()});
  Plan small, dims, windows, latent, hybrid, rotated;
  dims.groups = {{.layers = 3, .query_heads = 3, .kv_heads = 3, .key_dim = 48, .value_dim = 32}};
  windows.groups = {
      {.layers = 2, .query_heads = 2, .kv_heads = 1, .key_dim = 16, .window = 40, .sinks = 5}};
  latent.groups = {{.layers = 1,
                    .query_heads = 4,
                    .kv_heads = 1,
                    .key_dim = 80,
                    .value_dim = 64,
                    .kind = PKV_LAYERS_LATENT}};
  hybrid.groups = {
      {.layers = 2, .query_heads = 2, .kv_heads = 2, .key_dim = 32},
      {.layers = 1, .query_heads = 2, .kv_heads = 1, .key_dim = 16, .value_dim = 48, .window = 33},
      {.layers = 1, .query_heads = 4, .kv_heads = 4, .key_dim = 16, .window = 1, .sinks = 2}};
  rotated.groups = {
      {.layers = 1, .query_heads = 2, .kv_heads = 2, .key_dim = 48, .rotation = hadamard},
      {.layers = 1, .query_heads = 2, .kv_heads = 1, .key_dim = 16, .window = 20},
      {.layers = 1,
       .query_heads = 1,
       .kv_heads = 1,
       .key_dim = 16,
       .rotation_matrices = &exchanged}};
  return {{"small", small},   {"dims", dims},     {"windows", windows},
          {"latent", latent}, {"hybrid", hybrid}, {"rotated", rotated}};
}

// Opens sessions whose lengths lie at and beside the ends of blocks and tiles, some of them forked
// or trimmed.
std::vector<Session> sessions_in(pkv_cache cache, const Plan& setup) {
  std::vector<Session> sessions;
  for (const uint32_t length : {1u, 15u, 16u, 17u, 64u, 130u}) {
    sessions.push_back(open(cache));
    append_in_steps(cache, sessions.back(), setup, length, 1 + sessions.size());
  }
  sessions.push_back(fork(sessions.back()));
  append_in_steps(cache, sessions.back(), setup, 70, 20);
  sessions.push_back(fork(sessions[5]));
  append(cache, sessions.back(), setup, 5, 21);
  CHECK(pkv_session_trim(sessions.back(), 131));
  sessions.push_back(open(cache));  // The last one is empty.
  return sessions;
}

std::vector<pkv_session> handles_of(const std::vector<Session>& sessions) {
  return {sessions.begin(), sessions.end()};
}

// Saves from one cache and loads into another.
void expect_round_trip(const Plan& from, const Plan& to, bool some_gone = false) {
  const Cache a = create(from), b = create(to);
  const std::vector<Session> before = sessions_in(a, from);
  const Bytes file = save(a, handles_of(before));
  std::vector<uint64_t> labels;
  const std::vector<Session> after = load(b, file, nullptr, &labels);
  ASSERT_EQ(before.size(), after.size());
  for (size_t i = 0; i < before.size(); i++) {
    EXPECT_EQ(100 + i, labels[i]);
    expect_same(before[i], after[i], to, some_gone);
    if (testing::Test::HasFatalFailure()) FAIL() << "session " << i;
  }
  CHECK(pkv_cache_validate(a));
  CHECK(pkv_cache_validate(b));
}

TEST(RoundTrip, EveryDtypeOfEveryShape) {
  for (const auto& [name, setup] : setups())
    for (const pkv_dtype k : stored_dtypes)
      for (const pkv_dtype v : {k, PKV_F16, PKV_INT4}) {
        SCOPED_TRACE(std::string(name) + " " + name_of(k) + "/" + name_of(v));
        expect_round_trip(setup.with(k, v), setup.with(k, v));
        if (testing::Test::HasFatalFailure()) return;
      }
}

// Each group has each pair of kinds, each time of other types and block sizes.
TEST(RoundTrip, BetweenBlockSizesAndLayouts) {
  int turn = 0;
  for (const auto& [name, setup] : setups())
    for (const pkv_dtype dtype : {PKV_F32, PKV_BF16, PKV_INT4})
      for (const auto& [size_before, size_after] :
           {std::pair{16u, 32u}, {32u, 16u}, {64u, 16u}, {16u, 48u}, {48u, 16u}, {96u, 32u}})
        for (int kinds = turn++ % 4; kinds < 9; kinds += 4) {
          const auto kept = [&, &base = setup](int kind, uint32_t block_size) {
            Plan one = base.with(dtype, dtype);
            one.block_size = block_size;
            one.blocks = 96 * 64 / block_size;
            one.layout = kind == 1 ? PKV_LAYOUT_PLAIN : PKV_LAYOUT_PACKED;
            one.memory_directory = kind == 2 ? "." : nullptr;
            return one;
          };
          const bool windows = std::any_of(setup.groups.begin(), setup.groups.end(),
                                           [](const Model& group) { return group.window != 0; });
          if (windows && size_before % size_after != 0) continue;
          SCOPED_TRACE(std::string(name) + " " + name_of(dtype) + " from " +
                       std::to_string(size_before) + " to " + std::to_string(size_after) +
                       ", kinds " + std::to_string(kinds));
          expect_round_trip(kept(kinds % 3, size_before), kept(kinds / 3, size_after),
                            size_before != size_after);
          if (testing::Test::HasFatalFailure()) return;
        }
}

TEST(RoundTrip, BetweenF32F16AndBF16) {
  const pkv_dtype dtypes[] = {PKV_F32, PKV_F16, PKV_BF16};
  for (const auto& [name, setup] : setups())
    for (const pkv_dtype from : dtypes)
      for (const pkv_dtype to : dtypes)
        for (const pkv_layout layout : {PKV_LAYOUT_PACKED, PKV_LAYOUT_PLAIN}) {
          if (name == std::string("rotated")) continue;  // rows are rounded while they are rotated
          SCOPED_TRACE(std::string(name) + " " + name_of(from) + " to " + name_of(to));
          Plan target = setup.with(to, to);
          target.layout = layout;
          expect_round_trip(setup.with(from, from), target);
          expect_round_trip(setup.with(from, PKV_INT8),
                            setup.with(to, setup.groups[0].latent() ? to : PKV_INT8));
          if (testing::Test::HasFatalFailure()) return;
        }
}

TEST(RoundTrip, RotatedRowsBetweenF32AndBF16) {
  Plan wide, narrow;
  wide.groups = {{.layers = 2, .query_heads = 4, .kv_heads = 2, .key_dim = 64}};
  wide.groups[0].rotation = hadamard;
  narrow = wide.with(PKV_BF16, PKV_BF16);
  const Cache a = create(wide), b = create(narrow);
  const Session before = open(a);
  append(a, before, wide, 30, 1);
  const std::vector<Session> after = load(b, save(a, {before}));
  for (uint32_t layer = 0; layer < 2; layer++) {
    const KeysValues expected = materialize(before, layer, wide.groups[0], 0, 30),
                     found = materialize(after[0], layer, wide.groups[0], 0, 30);
    // Each of 64 numbers is rounded by 2^-9 of itself; the row's length is kept.
    expected.k.each([&](size_t r, uint32_t h, uint32_t d) {
      EXPECT_NEAR(expected.k.get(r, h, d), found.k.get(r, h, d), 8 * 0x1p-8f);
      EXPECT_NEAR(expected.v.get(r, h, d), found.v.get(r, h, d), 8 * 0x1p-8f);
    });
  }
}

TEST(RoundTrip, BetweenInstructionSets) {
  const Plan setup = plain_setup.with(PKV_INT4, PKV_BF16);
  for (const pkv_isa isa : supported_isas()) {
    Plan other = setup;
    other.isa = isa;
    expect_round_trip(setup, other);
    expect_round_trip(other, setup);
  }
}

TEST(RoundTrip, WithoutKeysAndValues) {
  Plan setup{.storage = PKV_STORAGE_EXTERNAL};
  expect_round_trip(setup, setup);
  Plan other = setup;
  other.block_size = 48;
  expect_round_trip(setup, other);
}

TEST(RoundTrip, TheSameCacheGivesTheSameBytes) {
  const Cache cache = create(plain_setup);
  const std::vector<Session> sessions = sessions_in(cache, plain_setup);
  EXPECT_EQ(save(cache, handles_of(sessions)), save(cache, handles_of(sessions)));
  const Cache other = create(plain_setup);
  const std::vector<Session> again = load(other, save(cache, handles_of(sessions)));
  EXPECT_EQ(save(cache, handles_of(sessions)), save(other, handles_of(again)))
      << "saved, loaded and saved again";
}

// Slots after the end of a sequence may hold rows of another one. They are not written to the file.
TEST(RoundTrip, NothingOfOthersIsSaved) {
  for (const pkv_dtype dtype : stored_dtypes) {
    Plan setup = plain_setup.with(dtype, dtype);
    setup.blocks = 2;
    setup.groups[0].key_dim = 16;
    const Cache clean = create(setup), used = create(setup);
    Session other = open(used);
    append(used, other, setup, 32, 9);
    other.close();
    const Session a = open(clean), b = open(used);
    append(clean, a, setup, 19, 3);
    append(used, b, setup, 19, 3);
    EXPECT_EQ(save(clean, {a}), save(used, {b})) << name_of(dtype);
  }
}

TEST(Sharing, WhatIsSharedIsSavedOnceAndSharedAgain) {
  Plan setup{.blocks = 1024};
  const Cache a = create(setup), b = create(setup);
  const Session prompt = open(a);
  append(a, prompt, setup, 320, 1);
  const uint64_t alone = inspect(save(a, {prompt})).kv_bytes;
  std::vector<Session> forks;
  for (int i = 0; i < 50; i++) {
    forks.push_back(fork(prompt));
    append(a, forks.back(), setup, 20, 2 + i);
  }
  const Bytes file = save(a, handles_of(forks));
  const pkv_file_info info = inspect(file);
  EXPECT_EQ(alone + 50 * 2 * alone / 20, info.kv_bytes)
      << "the prompt once, and two blocks of each session";
  EXPECT_EQ(50u * 340, info.tokens);
  EXPECT_EQ(50u * 20 + 320, info.stored_tokens);
  const std::vector<Session> loaded = load(b, file);
  EXPECT_EQ(20u + 50 * 2, pool_stats_of(b).held_blocks);
  for (size_t i = 0; i < forks.size(); i++) expect_same(forks[i], loaded[i], setup);
  // One session continues, and the others do not notice.
  append(b, loaded[0], setup, 10, 99);
  expect_same(forks[1], loaded[1], setup);
}

TEST(Sharing, SnapshotsAndSessionsOfAnyLength) {
  const Plan setup;
  const Cache a = create(setup), b = create(setup);
  const Session session = open(a);
  append(a, session, setup, 50, 1);
  const Snapshot snapshot = freeze(session);
  append(a, session, setup, 30, 1);
  const Session shorter = fork(session);
  CHECK(pkv_session_trim(shorter, 48));
  const std::vector<pkv_file_item> items = {
      {nullptr, snapshot, 7}, {session, nullptr, 8}, {shorter, nullptr, UINT64_MAX}};
  std::vector<uint64_t> labels;
  const std::vector<Session> loaded = load(b, save(a, items), nullptr, &labels);
  EXPECT_EQ((std::vector<uint64_t>{7, 8, UINT64_MAX}), labels);
  expect_same(thaw(snapshot), loaded[0], setup);
  expect_same(session, loaded[1], setup);
  expect_same(shorter, loaded[2], setup);
  EXPECT_EQ(6u, pool_stats_of(b).held_blocks)
      << "five blocks of the session, and the part-filled one of the snapshot";
  CHECK(pkv_cache_validate(b));
}

TEST(Saving, StepsGoOnWhileBytesAreWritten) {
  const Plan plan;
  const Cache a = create(plan), b = create(plan);
  const Session session = open(a);
  append(a, session, plan, 50, 1);
  const Session before = fork(session);
  struct Writer {
    pkv_cache cache;
    pkv_session session;
    const Plan* plan;
    Bytes bytes;
  } writer{a, session, &plan, {}};
  pkv_stream to = stream(PKV_STREAM_CALLBACKS);
  to.user = &writer;
  to.write = [](void* user, const void* from, uint64_t n) {
    Writer& self = *static_cast<Writer*>(user);
    std::thread([&] { append(self.cache, self.session, *self.plan, 3, 1); }).join();
    const auto* bytes = static_cast<const unsigned char*>(from);
    self.bytes.insert(self.bytes.end(), bytes, bytes + n);
    return static_cast<int64_t>(n);
  };
  const pkv_file_item item = {session, nullptr, 1};
  CHECK(pkv_file_save(a, 1, &item, nullptr, &to, nullptr));
  EXPECT_GT(length_of(session), 50u);
  expect_same(before, load(b, writer.bytes)[0], plan);
  CHECK(pkv_cache_validate(a));
}

TEST(Sharing, ALoadedSessionGoesOnAsTheOriginalWould) {
  for (const auto& [name, setup] : setups()) {
    SCOPED_TRACE(name);
    const Cache a = create(setup), b = create(setup);
    const Session before = open(a);
    append_in_steps(a, before, setup, 90, 1);
    std::vector<Session> loaded = load(b, save(a, {before}));
    const Model& model = setup.groups[0];
    const auto attend_next = [&](pkv_cache cache, pkv_session session) {
      Batch batch = begin(cache, {session}, {3});
      Rows out(3, model.query_heads, model.values());
      for (uint32_t layer = 0; layer < setup.layers(); layer++) {
        Random random(layer);
        KeysValues rows = random_rows(setup.of_layer(layer), 3, random);
        write(batch, layer, setup.of_layer(layer), rows);
      }
      Random random(5);
      Rows q(3, model.query_heads, model.key_dim);
      attend(batch, 0, q.fill(random), out);
      commit(batch);
      return out;
    };
    EXPECT_TRUE(attend_next(a, before) == attend_next(b, loaded[0]))
        << "the same bits of attention";
    append_in_steps(a, before, setup, 60, 3);
    append_in_steps(b, loaded[0], setup, 60, 3);
    expect_same(before, loaded[0], setup);
    CHECK(pkv_session_trim(before, length_of(before) - 3));
    CHECK(pkv_session_trim(loaded[0], length_of(before)));
    expect_same(before, loaded[0], setup);
    CHECK(pkv_cache_validate(b));
  }
}

TEST(Sessions, PrioritiesAndSuspendedOnesComeBack) {
  const Plan setup;
  const Cache a = create(setup), b = create(setup);
  const Session suspended = open_salted(a, "", PKV_PREFIX_SHARE, -5), resumed = open(a);
  append(a, suspended, setup, 40, 1);
  append(a, resumed, setup, 35, 2);
  CHECK(pkv_session_suspend(suspended));
  CHECK(pkv_session_suspend(resumed));
  uint64_t length = 0, total = 0;
  CHECK(pkv_session_resume(resumed, &length, &total));
  append(a, resumed, setup, 18, 2);
  const std::vector<Session> loaded = load(b, save(a, {suspended, resumed}));
  for (size_t i = 0; i < 2; i++) {
    const pkv_session original = i == 0 ? suspended : resumed;
    const pkv_session_info before = info_of(original), after = info_of(loaded[i]);
    EXPECT_EQ(before.priority, after.priority);
    EXPECT_EQ(before.suspended, after.suspended);
    EXPECT_EQ(before.length, after.length);
    EXPECT_EQ(before.total, after.total);
    EXPECT_EQ(tokens_of(original, before.total), tokens_of(loaded[i], before.total));
  }
  EXPECT_EQ(1u, stats_of(b).suspended_sessions);
  CHECK(pkv_session_resume(loaded[0], &length, &total));
  EXPECT_EQ(40u, total);
}

// If everything is still cached, no tokens need to be remembered.
TEST(Sessions, OneThatWasResumedAsAWholeComesBack) {
  Plan setup{.prefix = true};
  const Cache a = create(setup), b = create(setup);
  const Session chat = open(a), bystander = open(a);
  append(a, chat, setup, 32, 1);
  append(a, bystander, setup, 20, 2);
  CHECK(pkv_session_suspend(chat));
  uint64_t length = 0, total = 0;
  CHECK(pkv_session_resume(chat, &length, &total));
  ASSERT_EQ(std::pair(uint64_t{32}, uint64_t{32}), std::pair(length, total));
  const std::vector<Session> loaded = load(b, save(a, {chat, bystander}));
  expect_same(chat, loaded[0], setup);
  expect_same(bystander, loaded[1], setup);
}

// ---- The prefix index ---------------------------------------------------------------------------

uint64_t match(pkv_cache cache, const std::string& salt, uint64_t seed, size_t n) {
  const Session session = open_salted(cache, salt);
  std::vector<int32_t> text;
  for (size_t i = 0; i < n; i++) text.push_back(static_cast<int32_t>(seed * 1000 + i));
  uint64_t matched = 0;
  CHECK(pkv_session_admit(session, n, text.data(), 0, &matched));
  return matched;
}

void publish(pkv_cache cache, const Plan& setup, const std::string& salt, uint32_t tokens,
             uint64_t seed) {
  const Session session = open_salted(cache, salt);
  append_in_steps(cache, session, setup, tokens, seed);
}

TEST(Durability, OnlyFilesAtAPathCanBeSynced) {
  const Plan setup = setups()[0].second;
  const Cache cache = create(setup);
  auto config = made<pkv_file_config>({.durability = PKV_DURABILITY_ON});
  pkv_stream nowhere = stream(PKV_STREAM_BUFFER);
  REFUSED(PKV_UNSUPPORTED, pkv_file_save(cache, 0, nullptr, &config, &nowhere, nullptr));
  config.durability = PKV_DURABILITY_OFF;
  REFUSED(PKV_BUFFER_TOO_SMALL, pkv_file_save(cache, 0, nullptr, &config, &nowhere, nullptr));
}

TEST(Index, WhatWasCachedIsFoundAgain) {
  for (auto [name, setup] : setups()) {
    SCOPED_TRACE(name);
    setup.prefix = true;
    setup.blocks = 512;
    const Cache a = create(setup), b = create(setup);
    publish(a, setup, "", 100, 1);
    publish(a, setup, "one", 100, 1);
    publish(a, setup, "two", 70, 2);
    const Session session = open_salted(a, "two");
    append_in_steps(a, session, setup, 90, 3);
    auto config = made<pkv_file_config>({.prefix_index = 1, .trust_salts = 1});
    const Bytes file = save(a, {session}, &config);
    EXPECT_EQ(4u, inspect(file).prefix_entries);
    const std::vector<Session> loaded = load(b, file, &config);
    expect_same(session, loaded[0], setup);
    // Blocks of a window group that only a match inside a text would need are not saved.
    if (std::none_of(setup.groups.begin(), setup.groups.end(),
                     [](const Model& group) { return group.window != 0; })) {
      EXPECT_EQ(state_of(a), state_of(b));
    }
    for (const auto& [salt, seed] :
         {std::pair{"", 1}, {"one", 1}, {"two", 2}, {"two", 3}, {"one", 2}})
      EXPECT_EQ(match(a, salt, seed, 100), match(b, salt, seed, 100)) << salt << " " << seed;
    EXPECT_EQ(match(b, "two", 3, 90), setup.groups.size() > 1 || setup.groups[0].window != 0
                                          ? match(a, "two", 3, 90)
                                          : 80u);
    CHECK(pkv_cache_validate(b));
    // A second load finds everything, and nothing is kept twice.
    const uint64_t used = pool_stats_of(b).held_blocks;
    {
      const std::vector<Session> again = load(b, file, &config);
    }
    EXPECT_EQ(used, pool_stats_of(b).held_blocks);
    CHECK(pkv_cache_validate(b));
  }
}

TEST(Index, OtherBlockSizesKeepWholeBlocks) {
  Plan setup{.prefix = true};
  Plan larger = setup;
  larger.block_size = 48;
  const Cache a = create(setup), b = create(larger);
  publish(a, setup, "", 160, 1);
  {
    const Session session = open_salted(a, "");
    append(a, session, setup, 64, 1);
    // This one branches off in the middle of a larger block.
    append(a, session, setup, 64, 7);
  }
  auto config = made<pkv_file_config>({.prefix_index = 1, .trust_salts = 1});
  const Bytes file = save(a, std::vector<pkv_session>{}, &config);
  EXPECT_TRUE(load(b, file, &config).empty());
  EXPECT_EQ(144u, match(b, "", 1, 160));
  CHECK(pkv_cache_validate(b));
}

TEST(Index, IsLeftOutWhereNobodyAsksForIt) {
  Plan setup, without;
  setup.prefix = true;
  const Cache a = create(setup), b = create(setup), c = create(without);
  publish(a, setup, "", 100, 1);
  const Session session = open_salted(a, "x");
  append(a, session, setup, 20, 2);
  auto config = made<pkv_file_config>();
  EXPECT_EQ(0u, inspect(save(a, {session}, &config)).prefix_entries);
  config.prefix_index = config.trust_salts = 1;
  const Bytes file = save(a, {session}, &config);
  auto sessions = made<pkv_file_config>({.trust_salts = 1});
  EXPECT_EQ(1u, load(b, file, &sessions).size());
  EXPECT_EQ(0u, match(b, "", 1, 100));
  EXPECT_EQ(16u, match(b, "x", 2, 20)) << "what a session has is found after it ended";
  EXPECT_EQ(1u, load(c, file, &config).size()) << "a cache without an index";
  CHECK(pkv_cache_validate(c));
}

// A session that was resumed and saved before it computed anything has no blocks after a load, and
// may look empty. A match with another text would leave it with more tokens than it remembers, so
// that no file of it could be loaded.
TEST(Index, ASessionThatRemembersItsTextIsNotMatchedWithAnother) {
  Plan setup{.prefix = true};
  const Cache a = create(setup), b = create(setup);
  publish(b, setup, "", 48, 2);
  const Session resumed = open_salted(a, "", PKV_PREFIX_MATCH);
  append(a, resumed, setup, 32, 1);
  CHECK(pkv_session_suspend(resumed));
  uint64_t length = 0, total = 0, matched = 99;
  CHECK(pkv_session_resume(resumed, &length, &total));
  const std::vector<Session> loaded = load(b, save(a, {resumed}));
  const std::vector<int32_t> other = [&] {
    const Session session = open(a);
    append(a, session, setup, 48, 2);
    return tokens_of(session, 48);
  }();
  REFUSED(PKV_INVALID_ARGUMENT,
          pkv_session_admit(loaded[0], other.size(), other.data(), 0, &matched));
  EXPECT_STREQ("admit: the session is not empty: it has or remembers 32 tokens and holds 0 blocks",
               pkv_last_error());
  EXPECT_EQ(99u, matched);
}

// ---- Salts --------------------------------------------------------------------------------------

// Two tenants sent the same text, but their keys and values differ. The beginning of both may only
// exist as ids, because blocks left the windows of both, or the first one was dropped.
class TwoSalts : public testing::Test {
 protected:
  void begin(uint32_t window) {
    setup_.groups[0].window = window;
    setup_.prefix = true;
    cache_ = create(setup_);
    for (uint64_t tenant : {1, 2}) {
      sessions_.push_back(open_salted(cache_, "tenant " + std::to_string(tenant)));
      append_in_steps(cache_, sessions_.back(), setup_, 160, 7, 16, tenant);
    }
  }
  void expect_to_come_back(const std::vector<pkv_session>& saved, bool with_index) {
    auto config = made<pkv_file_config>({.prefix_index = with_index, .trust_salts = 1});
    const Bytes file = save(cache_, saved, &config);
    const Cache other = create(setup_);
    const std::vector<Session> loaded = load(other, file, &config);
    ASSERT_EQ(saved.size(), loaded.size());
    for (size_t i = 0; i < saved.size(); i++) expect_same(saved[i], loaded[i], setup_);
    CHECK(pkv_cache_validate(other));
    for (const char* salt : {"tenant 1", "tenant 2"}) {
      if (!with_index) break;
      EXPECT_EQ(match(cache_, salt, 7, 160), match(other, salt, 7, 160));
    }
  }
  Plan setup_;
  Cache cache_;
  std::vector<Session> sessions_;
};

TEST_F(TwoSalts, SessionsWhoseFirstBlocksLeftTheWindow) {
  begin(16);
  expect_to_come_back({sessions_[0], sessions_[1]}, false);
  expect_to_come_back({sessions_[0], sessions_[1]}, true);
}

TEST_F(TwoSalts, ASessionThatDroppedItsFirstBlock) {
  begin(0);
  const uint32_t first = 0;
  CHECK(pkv_session_drop_blocks(sessions_[0], 0, 1, &first));
  expect_to_come_back({sessions_[0], sessions_[1]}, false);
  expect_to_come_back({sessions_[0], sessions_[1]}, true);
}

TEST_F(TwoSalts, ASessionAndACachedTextOfTheOther) {
  begin(16);
  sessions_.erase(sessions_.begin());
  expect_to_come_back({sessions_[0]}, true);
}

TEST_F(TwoSalts, CachedTextsOfBoth) {
  begin(16);
  sessions_.clear();
  expect_to_come_back({}, true);
}

// ---- The header of a file -----------------------------------------------------------------

TEST(Inspect, TellsWhatTheFileHolds) {
  Plan setup{.block_size = 32};
  const Cache cache = create(setup);
  const Session session = open(cache);
  append(cache, session, setup, 33, 1);
  auto config = made<pkv_file_config>({.fingerprint = "model", .fingerprint_size = 5});
  const Bytes file = save(cache, {session}, &config);
  const pkv_file_info info = inspect(file);
  EXPECT_EQ(1u, info.version);
  EXPECT_EQ(file.size(), info.bytes);
  EXPECT_EQ(3u * 16 * 2 * 2 * 2 * 16 * 4, info.kv_bytes)
      << "3 tiles of 16 tokens, 2 layers, 2 heads, K and V, 16 dims of 4 bytes";
  EXPECT_EQ(1u, info.sessions);
  EXPECT_EQ(33u, info.tokens);
  EXPECT_EQ(32u, info.block_size);
  EXPECT_EQ(1u, info.group_count);
  EXPECT_EQ(2u, info.layers);
  EXPECT_EQ(1u, info.has_kv);
  EXPECT_EQ(0u, info.encrypted);
  ASSERT_EQ(5u, info.fingerprint_size);
  EXPECT_EQ(0, std::memcmp(info.fingerprint, "model", 5));
}

}  // namespace
}  // namespace store::round_trip_test
