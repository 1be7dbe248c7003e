#include <thread>

#include "../support/rounds.h"
#include "world_play.h"

namespace world {
namespace {

class World : public testing::TestWithParam<SmallCache> {};

TEST_P(World, SessionsHoldWhatTheyComputedAndFilesBringItBack) {
  const uint64_t seeds = pkv::test::number_in("PKV_ROUNDS", GetParam().stored ? 12 : 7);
  uint64_t matched = 0, trimmed = 0, refused = 0, no_memory = 0, fetched = 0, corrupt = 0;
  for (uint64_t seed = 1; seed <= seeds; seed++) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    WorldPlay play(GetParam(), Random(seed));
    for (int i = 0; i < 240; i++) {
      SCOPED_TRACE(testing::Message() << "operation " << i);
      play.operate();
      if (HasFailure()) return;
    }
    play.finish();
    if (HasFailure()) return;
    matched += play.matched() + play.matched_elsewhere();
    trimmed += play.trimmed();
    refused += play.refused();
    no_memory += play.no_memory();
    fetched += play.fetched();
    corrupt += play.corrupt();
  }
  EXPECT_EQ(GetParam().prefix, matched > 0);
  EXPECT_GT(trimmed, 0u);
  EXPECT_EQ(GetParam().stored, fetched > 0);
  EXPECT_GE(no_memory, seeds / 2) << "memory was hardly ever refused";
  if (is_scarce(GetParam())) {
    EXPECT_GE(refused, seeds) << "too many blocks to show anything";
  }
  if (!is_crowded(GetParam())) return;
  EXPECT_GT(matched, 30 * seeds);
  EXPECT_GE(refused, seeds / 10) << "too many blocks to show anything";
  EXPECT_EQ(GetParam().stored, corrupt > seeds / 10);
}

INSTANTIATE_TEST_SUITE_P(Kinds, World, testing::ValuesIn(kinds()),
                         [](const auto& test) { return test.param.name; });

// The states that a session shares with the index are saved with it, but the session does not keep
// them: they may be evicted before they are written, and must then not be loaded as zeros.
struct StatesThatGo : testing::Test {
  // Steps by one block, so that the index gets each state, and closes the session unless told
  // otherwise.
  Session compute(const std::string& salt, const std::vector<int32_t>& ids) {
    Session session = store::open_salted(cache_, salt);
    uint64_t matched = 0;
    CHECK(pkv_session_admit(session, ids.size(), ids.data(), 0, &matched));
    for (size_t n = matched; n < ids.size(); n += 16) {
      const Text whole = computed(ids, 1);
      const Text before(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(n)),
          more(whole.begin() + static_cast<ptrdiff_t>(n),
               whole.begin() + static_cast<ptrdiff_t>(std::min(n + 16, ids.size())));
      Batch batch = begin(cache_, {session}, {static_cast<uint32_t>(more.size())});
      write_step(batch, kind_, {{session, &before, more}});
      commit(batch, std::span(ids).subspan(n, more.size()));
    }
    return session;
  }
  // Takes all blocks that no session holds.
  void evict() {
    for (int32_t i = 0; i < 16; i++) others_.push_back(compute("other", {100 + i}));
  }
  const SmallCache kind_{"", {{.state_bytes = 72}}, 17};
  const Cache cache_ = create(kind_);
  std::vector<Session> others_;
};

TEST_F(StatesThatGo, AreNotThoseOfALoadedSession) {
  std::vector<int32_t> text(160, 1), branch(96, 1);
  std::fill(branch.begin() + 80, branch.end(), 2);
  const Session session = compute("z", text);
  compute("z", branch);  // so that the state after 80 tokens is worth saving
  auto config = made<pkv_file_config>({.prefix_index = 1, .trust_salts = 1});
  const store::Bytes file = store::save_meanwhile(cache_, {{session, nullptr, 1}}, &config,
                                                  [&] { std::thread([&] { evict(); }).join(); });
  const Cache other = create({"", kind_.groups, 64});
  const std::vector<Session> loaded = store::load(other, file, &config);
  const std::vector<bool> held =
      check_states(loaded[0], computed(text, 1), 0, kind_.groups[0].state_bytes);
  EXPECT_TRUE(held.back());
  EXPECT_FALSE(held[4]) << "nothing was evicted before it was written: this shows nothing";
  CHECK(pkv_cache_validate(other));
}

}  // namespace
}  // namespace world
