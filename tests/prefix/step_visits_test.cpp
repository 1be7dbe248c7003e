// The cost of a step that lacks blocks, and of the choice of victims for it, grows as what it has
// to look at, and not as the square of that. Counts as visits_test.cpp does.
#include "../support/cache.h"
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
  ModelConfig config = cache_test::config_of({}, blocks, PKV_STORAGE_NONE);
  pkv_layer_group groups[] = {config.model, config.model};
  groups[1].window = kind.window;
  if (kind.state_bytes != 0)
    groups[1] = made<pkv_layer_group>({.layers = 1, .state_bytes = kind.state_bytes});
  groups[0].blocks = groups[1].blocks = blocks;
  auto prefix = made<pkv_prefix_config>();
  config.prefix = &prefix;
  config.blocks = 0;
  config.groups = groups;
  config.group_count = kind.window == 0 && kind.state_bytes == 0 ? 1 : 2;
  if (kind.share_memory) {
    config.memory_bytes = cache_test::plan_of(config).memory_bytes;
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

TEST(StepVisits, OfVictimsGrowAsTheForksOfOneSession) {
  for (const Groups& kind : kinds)
    for (const bool reserved : {false, true}) {
      const uint64_t few = visits_to_choose(kind, 50, reserved),
                     many = visits_to_choose(kind, 400, reserved);
      std::printf("%-14s %s %8llu %8llu\n", kind.name, reserved ? "reserved" : "        ",
                  (unsigned long long)few, (unsigned long long)many);
      EXPECT_LT(many, 8 * few * 3 / 2) << kind.name << ", reserved: " << reserved;
    }
}

}  // namespace
}  // namespace step_visits_test
