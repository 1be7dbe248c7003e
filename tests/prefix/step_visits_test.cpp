// The cost of a step that lacks blocks, and of the choice of victims for it, grows as what it has
// to look at, and not as the square of that. Counts as visits_test.cpp does.
#include "../support/hints.h"
#include "visits.h"

namespace step_visits_test {
namespace {

using cache_test::Session;
using pkv::test::count;

// The layer groups of a model: one, one more with a window or with states, or two in a memory that
// they share.
struct Groups {
  const char* name;
  uint32_t window;
  uint64_t state_bytes;
  bool share_memory;
};

const Groups kinds[] = {
    {"one", 0, 0, false},
    {"window", 40, 0, false},
    {"states", 0, 64, false},
    {"shared memory", 40, 0, true},
};

cache_test::Cache create(const Groups& kind, uint64_t blocks) {
  ModelConfig config = cache_test::config_of({}, blocks, PKV_STORAGE_EXTERNAL);
  pkv_layer_group groups[] = {config.model, config.model};
  groups[1].window = kind.window;
  if (kind.state_bytes != 0)
    groups[1] = made<pkv_layer_group>(
        {.layers = 1, .kind = PKV_LAYERS_STATES, .layer_bytes = kind.state_bytes});
  groups[0].blocks = groups[1].blocks = blocks;
  auto prefix = made<pkv_prefix_config>({.max_pinned_tokens = 16 * blocks});
  config.prefix = &prefix;
  config.groups = groups;
  config.group_count = kind.window == 0 && kind.state_bytes == 0 ? 1 : 2;
  if (kind.share_memory) {
    config.memory_bytes = cache_test::sizes_of(config).memory_bytes;
    config.groups_share_memory = 1;
    groups[0].blocks = groups[1].blocks = 0;
  }
  return cache_test::create(config);
}

// Returns the visits of choose_victims() for a step of `n` forks of one session, beside as many
// that go first. `reserved`: those of the step have spare blocks for copies of the tail that all
// share.
uint64_t visits_to_choose(const Groups& kind, size_t n, bool reserved) {
  const cache_test::Cache cache = create(kind, reserved ? 4 * n : n / 2);
  std::vector<Session> sessions;
  sessions.push_back(cache_test::open(cache));
  cache_test::grow(cache, sessions[0], 8);
  while (sessions.size() < 2 * n) sessions.push_back(cache_test::fork(sessions[0]));
  for (size_t i = n; i < 2 * n; i++) CHECK(pkv_session_set_priority(sessions[i], -1));
  for (size_t i = 0; i < n && reserved; i++) CHECK(pkv_session_reserve(sessions[i], 12));
  const std::vector<pkv_session> step(sessions.begin(),
                                      sessions.begin() + static_cast<ptrdiff_t>(n));
  const std::vector<uint32_t> counts(n, reserved ? 8 + 64 : 1);
  std::vector<pkv_session> victims(sessions.size());
  size_t found = 0;
  const uint64_t visited = count([&] {
    CHECK(pkv_batch_choose_victims(cache, n, step.data(), counts.data(), victims.size(),
                                   victims.data(), &found));
  });
  EXPECT_GT(found, n + n / 5);
  return visited;
}

// The search for the fewest victims looks at all sessions a logarithm of times.
TEST(StepVisits, OfVictimsGrowAsTheForksOfOneSession) {
  for (const Groups& kind : kinds)
    for (const bool reserved : {false, true}) {
      const uint64_t few = visits_to_choose(kind, 50, reserved),
                     many = visits_to_choose(kind, 400, reserved);
      std::printf("%-14s %s %8llu %8llu\n", kind.name, reserved ? "reserved" : "        ",
                  (unsigned long long)few, (unsigned long long)many);
      EXPECT_LT(many, 8 * few * 2) << kind.name << ", reserved: " << reserved;
    }
}

// ---- What a step asks others for ----------------------------------------------------------------

using Text = std::vector<int32_t>;

Text text(int32_t name, size_t blocks) { return Text(blocks * 16, name); }

// Computes a text.
Session compute(pkv_cache cache, const Text& tokens) {
  Session session = cache_test::open(cache);
  cache_test::Batch batch =
      cache_test::begin(cache, {session}, {static_cast<uint32_t>(tokens.size())});
  cache_test::commit(batch, tokens);
  return session;
}

// Returns the visits of a step of n sessions, each with a tail that the index has, too. It works
// once the index lets go of three quarters of them. `reserved`: the sessions have spare blocks for
// copies of their tails.
uint64_t visits_to_let_go(const Groups& kind, size_t n, bool reserved) {
  const cache_test::Cache cache = create(kind, (reserved ? 3 : 2) * n + n / 4);
  std::vector<Session> sessions;
  for (size_t i = 0; i < n; i++) {
    sessions.push_back(compute(cache, text(static_cast<int32_t>(i), 2)));
    CHECK(pkv_session_trim(sessions[i], 20));
    if (reserved) CHECK(pkv_session_reserve(sessions[i], 24));
  }
  const std::vector<pkv_session> step(sessions.begin(), sessions.end());
  const std::vector<uint32_t> counts(n, reserved ? 16 : 1);
  pkv_batch batch = nullptr;
  return count([&] {
    CHECK(pkv_batch_begin(cache, n, step.data(), counts.data(), &batch));
    CHECK(pkv_batch_abort(batch));
  });
}

TEST(StepVisits, OfAStepThatLacksBlocksGrowAsItsTails) {
  for (const Groups& kind : kinds)
    for (const bool reserved : {false, true}) {
      if (kind.state_bytes != 0) continue;  // a trimmed session has no state
      const uint64_t few = visits_to_let_go(kind, 50, reserved),
                     many = visits_to_let_go(kind, 400, reserved);
      std::printf("%-14s %s %8llu %8llu\n", kind.name, reserved ? "reserved" : "        ",
                  (unsigned long long)few, (unsigned long long)many);
      EXPECT_LT(many, 8 * few * 3 / 2) << kind.name << ", reserved: " << reserved;
    }
}

// Caches n blocks and pins them.
struct Pins {
  const char* name;
  uint64_t most_growth;  // how many times as many visits 8 times as many pins may cost
  void (*pin)(pkv_cache cache, size_t n);
};

const Pins pins[] = {
    {"texts", 10,
     [](pkv_cache cache, size_t n) {
       for (size_t i = 0; i < n; i++) {
         const Text one = text(static_cast<int32_t>(i), 1);
         compute(cache, one);
         cache_test::hint(cache, PKV_HINT_PIN, one);
       }
     }},
    // The end of a pin visits the path to it.
    {"turns of one text", 40,
     [](pkv_cache cache, size_t n) {
       const Text all = text(1, n);
       compute(cache, all);
       for (size_t i = 1; i <= n; i++)
         cache_test::hint(cache, PKV_HINT_PIN, std::span(all).first(i * 16));
     }},
};

// Returns the visits of a step that lacks blocks beside n pins, and that works once a quarter of
// them ended, or fails even if all end; then victims are chosen, too.
uint64_t visits_to_begin(const Groups& kind, const Pins& given, size_t n, bool fails) {
  const cache_test::Cache cache = create(kind, 4 * n);
  given.pin(cache, n);
  const Session other = cache_test::open(cache, n * 16), session = cache_test::open(cache);
  const pkv_session step = session;
  const auto tokens = static_cast<uint32_t>((fails ? 4 * n - n / 4 : 2 * n + n / 4) * 16);
  pkv_batch batch = nullptr;
  size_t victims = 0;
  return count([&] {
    const pkv_status status = pkv_batch_begin(cache, 1, &step, &tokens, &batch);
    EXPECT_EQ(fails ? PKV_OUT_OF_BLOCKS : PKV_OK, status) << pkv_last_error();
    if (status == PKV_OK) CHECK(pkv_batch_abort(batch));
    if (fails) (void)pkv_batch_choose_victims(cache, 1, &step, &tokens, 0, nullptr, &victims);
  });
}

TEST(StepVisits, OfAStepThatLacksBlocksGrowAsThePins) {
  for (const Groups& kind : kinds)
    for (const Pins& given : pins)
      for (const bool fails : {false, true}) {
        const uint64_t few = visits_to_begin(kind, given, 30, fails),
                       many = visits_to_begin(kind, given, 240, fails);
        std::printf("%-14s %-18s %-6s %8llu %8llu\n", kind.name, given.name,
                    fails ? "fails" : "works", (unsigned long long)few, (unsigned long long)many);
        EXPECT_LT(many, given.most_growth * few)
            << kind.name << ", " << given.name << ", " << fails;
      }
}

}  // namespace
}  // namespace step_visits_test
