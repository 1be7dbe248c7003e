// Hints of one tenant cost others no hits beyond its quota. Two caches get the same requests of a
// quiet tenant. In one of them a loud tenant serves the same texts and gives every hint there is;
// the other one has less memory: without the loud tenant's quota and its running session. By LRU,
// the quiet tenant then has at least as many hits in the first cache, request for request.
// PKV_ROUNDS sets how many times that is played.
#include "../support/rounds.h"
#include "prefix_fixture.h"

namespace cache_test::hint_twin_test {
namespace {

constexpr uint64_t quota = 12, longest = 6 * 16, blocks = 40;

Cache make(uint64_t capacity, const TestClock& clock) {
  auto prefix =
      made<pkv_prefix_config>({.eviction = PKV_EVICTION_LRU, .max_pinned_tokens = 16 * capacity});
  ModelConfig config = config_of({}, capacity, PKV_STORAGE_EXTERNAL);
  config.prefix = &prefix;
  config.clock = clock.hook();
  return create(config);
}

struct Twins {
  explicit Twins(uint64_t seed) : random(seed) {
    CHECK(pkv_prefix_set_quota(both, "loud", 4, 16 * quota));
  }

  // Draws one of a few texts that share beginnings of whole blocks. A block that is used in part
  // waits for its copy out of its turn: that changes the order in both caches, but not alike.
  Text draw() {
    const auto name = static_cast<int32_t>(random.below(4));
    const Text system = text(name, 48),
               rest = text(10 + static_cast<int32_t>(random.below(4)), random.below(longest - 48));
    return system + rest;
  }

  // Serves a request, with a hint of its session. Returns how much of it matched.
  uint64_t serve(pkv_cache cache, const Text& whole, const std::string& salt,
                 const pkv_hint* given = nullptr) {
    auto config = made<pkv_session_config>({.salt = salt.data(), .salt_size = salt.size()});
    pkv_session opened = nullptr;
    CHECK(pkv_session_open(cache, &config, &opened));
    const Session session(opened);
    uint64_t matched = 99;
    CHECK(pkv_session_admit(session, whole.size(), whole.data(), 0, &matched));
    const auto fresh = static_cast<uint32_t>(whole.size() - matched);
    Batch batch = begin(cache, {session}, {fresh});
    commit(batch, std::span(whole).subspan(matched));
    if (given != nullptr) CHECK(pkv_hint_session(session, given, nullptr));
    return matched;
  }

  pkv_hint draw_hint(size_t size) {
    const uint64_t end = random.below(size + 1);
    return hint_of(static_cast<pkv_hint_action>(random.between(1, 8)),
                   {.first = random.below(end + 1),
                    .end = end,
                    .retention = static_cast<pkv_retention>(static_cast<int>(random.below(3)) - 1),
                    .duration_ms = random.chance(50) ? 0 : random.between(1, 50)});
  }

  void be_loud() {
    const Text whole = draw();
    pkv_hint of_session = draw_hint(whole.size());
    if (of_session.action == PKV_HINT_DROP) of_session.end = PKV_TO_END;
    serve(both, whole, "loud", &of_session);
    for (uint64_t n = random.below(4); n > 0; n--) {
      const Text other = draw();
      const pkv_hint given = draw_hint(other.size());
      if (given.action != PKV_HINT_EXPECT_RETURN) hint(both, given.action, other, "loud", given);
    }
    if (random.chance(20)) clock.advance(random.below(20));
  }

  // Serves the quiet tenant in both caches. Returns how much more matched beside the loud one.
  int64_t be_quiet() {
    const Text whole = draw();
    const uint64_t beside = serve(both, whole, "quiet"), alone = serve(one, whole, "quiet");
    hits += alone;
    return static_cast<int64_t>(beside) - static_cast<int64_t>(alone);
  }

  Random random;
  TestClock clock{1};
  Cache both = make(blocks, clock), one = make(blocks - quota - longest / 16, clock);
  uint64_t hits = 0;
};

TEST(HintTwin, HintsOfOneSaltDoNotCostAnotherItsHits) {
  uint64_t hits = 0, pinned = 0;
  for (uint64_t seed = 1; seed <= pkv::test::number_in("PKV_ROUNDS", 15); seed++) {
    Twins twins(seed);
    for (int request = 0; request < 300; request++) {
      while (twins.random.chance(60)) twins.be_loud();
      ASSERT_GE(twins.be_quiet(), 0) << "seed " << seed << ", request " << request;
      const PrefixStats stats = prefix_stats_of(twins.both, "loud", 4);
      ASSERT_LE(stats.cached_blocks, quota);
      ASSERT_LE(stats.pinned_blocks, quota / 2);
      pinned += stats.pinned_blocks;
    }
    CHECK(pkv_cache_validate(twins.both));
    hits += twins.hits;
  }
  EXPECT_GT(hits, 50'000u) << "this shows little";
  EXPECT_GT(pinned, 5'000u);
}

}  // namespace
}  // namespace cache_test::hint_twin_test
