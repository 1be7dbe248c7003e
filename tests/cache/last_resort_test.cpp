// What others give up for a call that lacks blocks: the store what it has not written, and pins.
// Twin caches play the same operations. Whatever a call gets in the one without pins, it gets in
// the other one, too, which ends no pin in vain; and a call that fails has changed nothing.
// PKV_ROUNDS makes the random play longer, from PKV_SEED on.
#include "../support/hints.h"
#include "../support/rounds.h"
#include "../support/sanitizers.h"
#include "prefix_fixture.h"
#include "world_sessions.h"

namespace world {
namespace {

class Twin : WorldSessions {
 public:
  Twin(const SmallCache& kind, uint64_t seed)
      : WorldSessions(std::make_shared<Shared>(kind), Random(seed)) {}

  // Plays operations, and passes the content of some sessions to a store that stands still.
  void play() {
    for (uint64_t n = random_.between(10, 60); n > 0; n--) {
      operate();
      settle();
    }
    for (uint64_t n = random_.below(6); n > 0; n--) pin();
    if (kind_.stored) store_.hold();
    for (uint64_t n = random_.below(4); n > 0 && talks_.size() > 1; n--) close();
    CHECK(pkv_cache_validate(cache()));
    draw_call();
  }
  ~Twin() { store_.go_on(); }

  // Makes a call that may lack blocks: a step of some sessions, or a reservation. Returns whether
  // it got them.
  bool call() {
    pkv_status status = PKV_OK;
    if (reserves_) {
      status = pkv_session_reserve(sessions_[0], counts_[0]);
    } else {
      pkv_batch begun = nullptr;
      status = pkv_batch_begin(cache(), sessions_.size(), sessions_.data(), counts_.data(), &begun);
      const Batch batch(begun);
      if (status == PKV_OK) CHECK(pkv_cache_validate(cache()));
    }
    if (status != PKV_OUT_OF_BLOCKS && status != PKV_TOO_LARGE && status != PKV_BATCH_TOO_LARGE)
      cache_test::check(status, "the call");
    CHECK(pkv_cache_validate(cache()));
    return status == PKV_OK;
  }

  // Asks for one block less, or for one session less. Returns false if nothing would be left.
  bool shrink() {
    if (counts_[0] > 16) {
      counts_[0] -= 16;
    } else {
      sessions_.pop_back();
      counts_.pop_back();
    }
    return !sessions_.empty();
  }

  // Suspends what the library names, and makes the call for the other sessions. Returns false if it
  // says that this is not enough.
  bool call_after_preemption() {
    if (reserves_) return false;
    std::vector<pkv_session> victims(max_talks);
    size_t count = 0;
    if (pkv_batch_choose_victims(cache(), sessions_.size(), sessions_.data(), counts_.data(),
                                 victims.size(), victims.data(), &count) != PKV_OK)
      return false;
    victims.resize(count);
    for (Talk& talk : talks_)
      if (std::count(victims.begin(), victims.end(), talk.session.get()) > 0) suspend(talk);
    for (size_t i = sessions_.size(); i-- > 0;)
      if (std::count(victims.begin(), victims.end(), sessions_[i]) > 0) {
        sessions_.erase(sessions_.begin() + static_cast<ptrdiff_t>(i));
        counts_.erase(counts_.begin() + static_cast<ptrdiff_t>(i));
      }
    EXPECT_TRUE(call()) << pkv_last_error();
    return true;
  }

  void end_all_pins() { here_->clock.end(); }
  // Ends a pin, and returns whether it was there.
  bool unpin(size_t i) {
    return hint(cache(), PKV_HINT_UNPIN, pins_[i].second, pins_[i].first).outcome ==
           PKV_HINT_OUTCOME_DONE;
  }
  size_t pins() const { return pins_.size(); }
  uint64_t yielded() const { return prefix_stats_of(cache()).yielded_pins; }

  // Everything that a call which fails must leave as it was.
  std::vector<uint64_t> state() const {
    const PrefixStats prefix = prefix_stats_of(cache());
    std::vector<uint64_t> state = {pool_stats_of(cache()).held_blocks,
                                   stats_of(cache()).evictable_blocks,
                                   prefix.cached_blocks,
                                   prefix.evictable_blocks,
                                   prefix.pinned_blocks,
                                   prefix.yielded_pins,
                                   prefix.evicted_blocks,
                                   prefix.cleared_blocks};
    if (kind_.stored) {
      const StoreStats store = store_stats_of(cache());
      state.push_back(store.queued_blocks);
      state.push_back(store.unwritten_blocks);
    }
    for (const std::vector<int32_t>& text : past_)
      for (const std::string_view salt : {"", "a", "b"}) {
        uint64_t cached = 0;
        CHECK(pkv_prefix_probe(cache(), TextArg(text, salt), &cached));
        state.push_back(cached);
      }
    for (const Talk& talk : talks_) {
      state.push_back(info_of(talk.session).blocks);
      state.push_back(info_of(talk.session).exclusive_blocks);
    }
    return state;
  }

 private:
  void operate() {
    struct Operation {
      uint64_t weight;
      void (Twin::*run)();
    };
    static constexpr Operation all[] = {
        {12, &Twin::open_talk},
        {30, &Twin::step},
        {8, &Twin::close},
        {8, &Twin::fork_talk},
        {10, &Twin::trim},
        {4, &Twin::drop},
        {3, &Twin::suspend},
        {3, &Twin::resume},
        {5, &Twin::reserve},
        {3, &Twin::take_snapshot},
        {3, &Twin::set_tokens},
        {5, &Twin::step_without_ids_of_one},
        {12, &Twin::know_ids_of_a_fork},
        {16, &Twin::pin},
    };
    uint64_t weights = 0;
    for (const Operation& each : all) weights += each.weight;
    uint64_t choice = random_.below(weights);
    size_t i = 0;
    while (choice >= all[i].weight) choice -= all[i++].weight;
    (this->*all[talks_.empty() ? 0 : i].run)();
  }
  void step_without_ids_of_one() { step_without_ids(); }

  void pin() {
    if (past_.empty()) return;
    const std::vector<int32_t>& text = past_[random_.below(past_.size())];
    const std::string salt = random_.chance(50) ? "" : "a";
    const pkv_hint_result result =
        hint(cache(), PKV_HINT_PIN, text, salt, {.duration_ms = random_.between(1, 1000)});
    if (result.tokens == 0) return;
    const std::vector<int32_t> pinned(text.begin(),
                                      text.begin() + static_cast<ptrdiff_t>(result.tokens));
    if (std::find(pins_.begin(), pins_.end(), std::pair(salt, pinned)) == pins_.end())
      pins_.emplace_back(salt, pinned);
  }

  // Draws a call that asks for too much.
  void draw_call() {
    reserves_ = random_.chance(30);
    for (const Talk& talk : talks_)
      if (!talk.suspended && (sessions_.empty() || (!reserves_ && random_.chance(60)))) {
        sessions_.push_back(talk.session);
        counts_.push_back(static_cast<uint32_t>(random_.between(1, random_.chance(50) ? 3 : 20)));
      }
    if (sessions_.empty()) {
      talks_.emplace_back();
      talks_.back().session = cache_test::open(cache());
      sessions_.push_back(talks_.back().session);
      counts_.push_back(0);
    }
    counts_[0] += static_cast<uint32_t>(16 * kind_.blocks);
    if (reserves_) counts_[0] += static_cast<uint32_t>(length_of(sessions_[0]));
  }

  std::vector<std::pair<std::string, std::vector<int32_t>>> pins_;  // salts and texts
  std::vector<pkv_session> sessions_;                               // of the call
  std::vector<uint32_t> counts_;
  bool reserves_ = false;
};

// How often a play came to something that it is there to show.
struct Seen {
  uint64_t refused = 0, yielded = 0, preempted = 0;
};

// The pins that a call ended were needed: without one of them the call has to end another.
void expect_needed(const SmallCache& kind, uint64_t seed, int shrunk, Twin& after) {
  Twin before(kind, seed);
  before.play();
  std::vector<size_t> ended;
  for (size_t i = 0; i < before.pins(); i++) {
    const bool was = before.unpin(i), is = after.unpin(i);
    EXPECT_TRUE(was || !is);
    if (was && !is) ended.push_back(i);
  }
  for (const size_t one : ended) {
    Twin twin(kind, seed);
    twin.play();
    for (int i = 0; i < shrunk; i++) twin.shrink();
    for (const size_t other : ended)
      if (other != one) twin.unpin(other);
    const uint64_t yielded = twin.yielded();
    EXPECT_TRUE(twin.call());
    EXPECT_GT(twin.yielded(), yielded) << "a pin of " << ended.size() << " ended in vain";
  }
}

// Asks for less and less, until there is enough. That is the most that there is, so pins end for it
// if they keep anything else from being used.
void compare(const SmallCache& kind, uint64_t seed, Seen& seen) {
  SCOPED_TRACE(testing::Message() << "PKV_SEED=" << seed);
  Twin twin(kind, seed), without_pins(kind, seed);
  twin.play();
  without_pins.play();
  without_pins.end_all_pins();
  const std::vector<uint64_t> before = twin.state();
  for (int shrunk = 0;; shrunk++) {
    const uint64_t yielded = twin.yielded();
    const bool worked = twin.call();
    ASSERT_EQ(without_pins.call(), worked) << "with pins: " << pkv_last_error();
    if (worked) {
      if (twin.yielded() > yielded) seen.yielded++, expect_needed(kind, seed, shrunk, twin);
      return;
    }
    ASSERT_EQ(before, twin.state()) << "a call failed";
    seen.refused++;
    if (seed % 3 == 0 && shrunk >= static_cast<int>(seed % 25)) {
      seen.preempted += twin.call_after_preemption();
      return;
    }
    if (!twin.shrink() || !without_pins.shrink()) return;
  }
}

std::vector<SmallCache> kinds_with_pins() {
  std::vector<SmallCache> all;
  for (SmallCache kind : kinds()) {
    if (!kind.prefix) continue;
    kind.max_pinned = kind.blocks;
    // A session has few states, so few suffice for many sessions.
    for (SmallGroup& group : kind.groups)
      if (group.has_states() && !kind.shared) group.blocks = 7;
    if (is_sparse(kind)) kind.blocks = kind.blocks * 2 / 3;
    all.push_back(kind);
  }
  return all;
}

TEST(LastResort, NobodyGivesUpAnythingInVain) {
  const uint64_t first = pkv::test::number_in("PKV_SEED", 1),
                 rounds = pkv::test::number_in("PKV_ROUNDS", pkv::test::sanitized ? 5 : 20);
  Seen seen;
  for (const SmallCache& kind : kinds_with_pins()) {
    SCOPED_TRACE(kind.name);
    for (uint64_t seed = first; seed < first + rounds && !HasFailure(); seed++)
      compare(kind, seed, seen);
  }
  if (HasFailure() || rounds < 20) return;
  EXPECT_GT(seen.refused, 100 * rounds);
  EXPECT_GT(seen.yielded, 2 * rounds) << "hardly a step lacked blocks because of pins";
  EXPECT_GT(seen.preempted, rounds);
}

}  // namespace
}  // namespace world
