// Steps that write to tails which pins keep: they get what they get in a twin without pins, and the
// library names no victims only if a step fails even then. PKV_ROUNDS makes the random play longer,
// from PKV_SEED on.
#include <algorithm>

#include "../support/hints.h"
#include "../support/rounds.h"
#include "../support/test_clock.h"
#include "small_cache.h"

namespace cache_test::victims_pins_test {
namespace {

// A session, and some forks of it, that write to tails which the index has, too, some of them
// pinned, in all groups of a cache that other pins and a running batch leave few blocks of.
class PinnedTails {
 public:
  PinnedTails(const SmallCache& kind, uint64_t seed)
      : random_(seed), cache_(create(kind, nullptr, nullptr, clock_.hook())) {
    const pkv_session running = running_;
    const auto of_running = static_cast<uint32_t>(16 * random_.below(5));
    pkv_batch begun = nullptr;
    (void)pkv_batch_begin(cache_, 1, &running, &of_running, &begun);
    running_batch_ = Batch(begun);
    for (uint64_t n = random_.between(1, 3); n > 0; n--) keep_text();
    for (uint64_t n = random_.between(1, 3); n > 0; n--) add();
    for (uint64_t n = random_.below(4); n > 0; n--) change();
    for (const Session& session : sessions_)
      if (step_.empty() || random_.chance(60)) {
        step_.push_back(session);
        counts_.push_back(static_cast<uint32_t>(random_.between(1, random_.chance(70) ? 4 : 40)));
      }
  }

  // Suspends what the library names, and then the step works. If it names nobody, the step fails,
  // even if all but the last one to be chosen are suspended and no pins are left. Returns whether
  // it named nobody.
  bool suspend_victims() {
    std::vector<pkv_session> victims(sessions_.size());
    size_t count = 0;
    const pkv_status status = pkv_batch_choose_victims(
        cache_, step_.size(), step_.data(), counts_.data(), victims.size(), victims.data(), &count);
    if (status == PKV_TOO_LARGE) return false;
    const bool refused = status == PKV_OUT_OF_BLOCKS;
    if (refused) {
      EXPECT_NE(PKV_OK, begin_step()) << "nobody need be suspended";
      victims.assign(sessions_.begin() + 1, sessions_.end());
    } else {
      CHECK(status);
      victims.resize(count);
    }
    for (const pkv_session victim : victims) {
      CHECK(pkv_session_suspend(victim));
      const auto at = std::find(step_.begin(), step_.end(), victim) - step_.begin();
      if (at == static_cast<ptrdiff_t>(step_.size())) continue;
      step_.erase(step_.begin() + at);
      counts_.erase(counts_.begin() + at);
    }
    if (refused) end_pins();
    EXPECT_EQ(begin_step() == PKV_OK, !refused) << pkv_last_error();
    CHECK(pkv_cache_validate(cache_));
    return refused;
  }

  void end_pins() { clock_.end(); }

  pkv_status begin_step() {
    pkv_batch begun = nullptr;
    const pkv_status status =
        pkv_batch_begin(cache_, step_.size(), step_.data(), counts_.data(), &begun);
    const Batch batch(begun);
    return status;
  }

 private:
  bool compute(pkv_session session, const std::vector<int32_t>& ids) {
    const auto count = static_cast<uint32_t>(ids.size());
    pkv_batch begun = nullptr;
    if (pkv_batch_begin(cache_, 1, &session, &count, &begun) != PKV_OK) return false;
    Batch batch(begun);
    commit(batch, ids);
    return true;
  }

  // Caches a text of its own.
  void keep_text() {
    const std::vector<int32_t> text(random_.between(1, 70), static_cast<int32_t>(texts_.size()));
    if (!compute(open(cache_), text)) return;
    texts_.push_back(text);
    pin(text);
  }

  void pin(const std::vector<int32_t>& text) {
    if (random_.chance(70)) hint(cache_, PKV_HINT_PIN, text, {}, {.duration_ms = ++pins_});
  }

  // Adds a session with a part of a text that is cached, or with a part of a new one.
  void add() {
    if (texts_.empty()) texts_.push_back(std::vector<int32_t>(random_.between(1, 70), -5));
    const std::vector<int32_t>& text = texts_[random_.below(texts_.size())];
    sessions_.push_back(open(cache_));
    const pkv_session session = sessions_.back();
    uint64_t matched = 0;
    const size_t n = random_.between(1, text.size());
    if (random_.chance(70)) {
      CHECK(pkv_session_admit(session, n, text.data(), 0, &matched));
    } else if (compute(session, text)) {
      pin(text);
      (void)pkv_session_trim(session, n);
    }
  }

  void change() {
    const pkv_session session = sessions_[random_.below(sessions_.size())];
    const uint64_t length = length_of(session), what = random_.below(100);
    if (what < 30) {
      sessions_.push_back(fork(session));
    } else if (what < 60) {
      (void)pkv_session_reserve(session, length + random_.between(1, 20));
    } else if (what < 75) {
      (void)pkv_session_trim(session, length - std::min(length, random_.between(1, 10)));
    } else if (what < 85) {
      snapshots_.push_back(freeze(session));
    } else {
      compute(session, std::vector<int32_t>(random_.between(1, 20), 9));
    }
  }

  Random random_;
  TestClock clock_;
  Cache cache_;
  Session running_ = open(cache_);
  Batch running_batch_;
  std::vector<Session> sessions_;  // in the order in which they were opened
  std::vector<Snapshot> snapshots_;
  std::vector<std::vector<int32_t>> texts_;
  uint64_t pins_ = 0;  // each ends at another time, so that the same one goes first in a twin
  std::vector<pkv_session> step_;
  std::vector<uint32_t> counts_;
};

TEST(VictimsAndPins, AreRefusedOnlyIfTheStepThenFails) {
  const SmallGroup full{}, window{.window = 20}, states{.state_bytes = 64, .max_verify_tokens = 2};
  const SmallCache kinds[] = {
      {.name = "full", .groups = {full}},
      {.name = "two", .groups = {full, full}},
      {.name = "window", .groups = {full, window}},
      {.name = "states", .groups = {full, states}},
      {.name = "two share memory", .groups = {full, full}, .shared = true},
      {.name = "window shares memory", .groups = {full, window}, .shared = true},
      {.name = "states share memory", .groups = {full, full, states}, .shared = true},
      {.name = "unequal blocks share memory",
       .groups = {{.layers = {0, 2}}, {.layers = {1}}, {.window = 20, .layers = {3, 4, 5}}},
       .shared = true},
  };
  const uint64_t first = pkv::test::number_in("PKV_SEED", 1),
                 rounds = pkv::test::number_in("PKV_ROUNDS", 200);
  for (SmallCache kind : kinds) {
    uint64_t refused = 0;
    kind.storage = PKV_STORAGE_EXTERNAL;
    for (uint64_t seed = first; seed < first + rounds && !HasFailure(); seed++) {
      SCOPED_TRACE(testing::Message() << kind.name << ", PKV_SEED=" << seed);
      kind.blocks = kind.max_pinned = 5 + seed % 8;
      kind.watermark = seed % 3 == 0;
      PinnedTails without(kind, seed), with(kind, seed);
      without.end_pins();
      EXPECT_EQ(without.begin_step(), with.begin_step()) << pkv_last_error();
      refused += PinnedTails(kind, seed).suspend_victims();
    }
    EXPECT_GE(refused, rounds / 100) << kind.name;
  }
}

}  // namespace
}  // namespace cache_test::victims_pins_test
