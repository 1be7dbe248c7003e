// Retention, pins and quotas, which take precedence over the eviction policy, and the events that
// list what is cached.
#include <cstring>
#include <set>

#include "prefix_fixture.h"

namespace cache_test::prefix_keep_test {
namespace {

class PrefixKeep : public Prefix {
 protected:
  static pkv_prefix_config config(pkv_eviction eviction = PKV_EVICTION_LRU) {
    return made<pkv_prefix_config>({.eviction = eviction});
  }

  uint64_t pin(const Text& tokens, const std::string& salt = "") {
    const pkv_hint_result result = hint(cache_, PKV_HINT_PIN, tokens, salt);
    CHECK(pkv_cache_validate(cache_));
    return result.tokens;
  }
  void unpin(const Text& tokens, const std::string& salt = "") {
    EXPECT_EQ(PKV_HINT_OUTCOME_DONE, hint(cache_, PKV_HINT_UNPIN, tokens, salt).outcome);
    CHECK(pkv_cache_validate(cache_));
  }
  void expect_unpinned(const Text& tokens) {
    EXPECT_EQ(PKV_HINT_OUTCOME_MISSING, hint(cache_, PKV_HINT_UNPIN, tokens).outcome);
  }
  void set_quota(uint64_t tokens, const std::string& salt) {
    CHECK(pkv_prefix_set_quota(cache_, salt.data(), salt.size(), tokens));
    CHECK(pkv_cache_validate(cache_));
  }
  // Takes `blocks` blocks of each group and releases them. All that can be evicted for them is
  // evicted.
  void press(uint64_t blocks) {
    Session session = open(cache_);
    CHECK(pkv_session_reserve(session, blocks * block_size_));
  }
  // Returns how many tokens of a text are cached.
  uint64_t cached(const Text& tokens, const std::string& salt = "") {
    return match(open_salted(salt, PKV_PREFIX_MATCH), tokens);
  }
};

TEST_F(PrefixKeep, ALowerRetentionGoesFirstWhateverThePolicySays) {
  for (const pkv_eviction eviction : {PKV_EVICTION_LEARNED, PKV_EVICTION_LRU}) {
    SCOPED_TRACE(eviction);
    make(12, config(eviction));
    serve(text(1, 32), "", PKV_RETENTION_HIGH);  // This is the oldest text.
    serve(text(2, 32));
    for (int i = 0; i < 3; i++)
      // This is the most recently and most frequently used text.
      serve(text(3, 32), "", PKV_RETENTION_LOW);
    press(8);
    EXPECT_EQ(0u, cached(text(3, 32)));
    EXPECT_EQ(32u, cached(text(2, 32)));
    press(10);
    EXPECT_EQ(0u, cached(text(2, 32)));
    EXPECT_EQ(32u, cached(text(1, 32)));
    press(12);
    EXPECT_EQ(0u, cached(text(1, 32))) << "a high retention is no pin";
  }
}

TEST_F(PrefixKeep, ABlockHasTheHighestRetentionOfItsUsers) {
  make(12, config());
  const Text system = text(1, 32);
  serve(system + text(2, 32), "", PKV_RETENTION_LOW);
  serve(system + text(3, 32), "", PKV_RETENTION_HIGH);
  serve(system, "", PKV_RETENTION_LOW);
  serve(text(4, 32));
  press(8);
  EXPECT_EQ(32u, cached(system + text(2, 32))) << "its own end is gone";
  press(8);
  EXPECT_EQ(64u, cached(system + text(3, 32)));
}

TEST_F(PrefixKeep, PinsStayUntilTheyAreTakenBackOrAStepNeedsThem) {
  make(8, config());
  const Text prompt = text(1, 40);
  EXPECT_EQ(0u, pin(prompt)) << "nothing is cached";
  serve(prompt);
  EXPECT_EQ(32u, pin(prompt));
  EXPECT_EQ(32u, pin(prompt + text(2, 50)));
  EXPECT_EQ(2u, figures().pinned_blocks);
  EXPECT_EQ(0u, figures().evictable_blocks);
  EXPECT_EQ(0u, stats_of(cache_).evictable_blocks);
  press(6);
  clear();
  EXPECT_EQ(32u, cached(prompt));
  const Text pinned(prompt.begin(), prompt.begin() + 32);
  unpin(pinned);
  EXPECT_EQ(0u, figures().pinned_blocks);
  expect_unpinned(pinned);
  expect_unpinned({});
  EXPECT_EQ(32u, pin(prompt));
  Session running = open(cache_), greedy = open(cache_);
  CHECK(pkv_session_reserve(running, 2 * 16));
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_session_reserve(greedy, 7 * 16));
  EXPECT_EQ(2u, figures().pinned_blocks) << "no pin ends in vain";
  CHECK(pkv_session_reserve(greedy, 6 * 16));
  EXPECT_EQ(0u, figures().pinned_blocks);
  expect_unpinned(pinned);
}

TEST_F(PrefixKeep, AnUnpinTouchesNoOtherPin) {
  make(32, config());
  const Text prompt = text(1, 64);
  const auto first = [&](int64_t n) { return Text(prompt.begin(), prompt.begin() + n); };
  serve(prompt);
  EXPECT_EQ(16u, pin(first(20)));
  EXPECT_EQ(48u, pin(first(48)));
  for (const int64_t n : {1, 15, 32, 47, 64}) expect_unpinned(first(n));
  expect_unpinned(text(2, 16));
  EXPECT_EQ(3u, figures().pinned_blocks) << "what both keep counts once";
  EXPECT_EQ(1u, figures().evictable_blocks);
  unpin(first(50));
  EXPECT_EQ(1u, figures().pinned_blocks);
  expect_unpinned(first(48));
  unpin(first(16));
  EXPECT_EQ(4u, figures().evictable_blocks);
}

TEST_F(PrefixKeep, PinsHaveAQuota) {
  pkv_prefix_config config = PrefixKeep::config();
  config.max_pinned_tokens = 48;
  make(16, config);
  serve(text(1, 32));
  serve(text(2, 32));
  EXPECT_EQ(32u, pin(text(1, 32)));
  const Text other = text(2, 32);
  EXPECT_EQ(16u, pin(other));
  EXPECT_EQ(32u, pin(text(1, 32))) << "pinned already: no block more";
  make(16, PrefixKeep::config());  // The quota is a quarter of its 16 blocks.
  serve(text(1, 80));
  EXPECT_EQ(64u, pin(text(1, 80)));
}

TEST_F(PrefixKeep, AWindowGroupKeepsThePinnedWindow) {
  make(32, config(), PKV_STORAGE_INTERNAL, 32);
  const Text system = text(1, 96);
  serve(system);
  EXPECT_EQ(96u, pin(system));
  EXPECT_EQ(96u, serve(system + text(2, 100)));
  press(22);
  EXPECT_EQ(160u, cached(system + text(2, 100)));
  press(26);
  EXPECT_EQ(96u, cached(system + text(2, 100)));
  unpin(system);
}

TEST_F(PrefixKeep, AFullSaltLosesItsOwn) {
  pkv_prefix_config config = PrefixKeep::config();
  config.max_tokens_per_salt = 64;
  make(64, config);
  serve(text(9, 48), "other");
  serve(text(1, 32), "one");
  serve(text(2, 32), "one");
  EXPECT_EQ(4u, figures("one").cached_blocks);
  serve(text(3, 16), "one");
  EXPECT_EQ(4u, figures("one").cached_blocks);
  EXPECT_EQ(1u, figures("one").expelled_blocks);
  EXPECT_EQ(0u, figures("one").evicted_blocks);
  EXPECT_EQ(16u, cached(text(1, 32), "one")) << "the end of the text used longest ago went";
  EXPECT_EQ(48u, cached(text(9, 48), "other"));
  serve(text(4, 160), "one");
  EXPECT_EQ(64u, cached(text(4, 160), "one"))
      << "of a text longer than the quota its beginning is kept";
  Session running = open_salted("one");
  EXPECT_EQ(64u, match(running, text(4, 160)));
  serve(text(5, 32), "one");
  EXPECT_EQ(0u, cached(text(5, 32), "one")) << "what is in use makes no room";
}

TEST_F(PrefixKeep, QuotasCanBeSetForEachSalt) {
  make(64, config());
  serve(text(1, 64), "one");
  serve(text(2, 64), "two");
  set_quota(48, "one");
  EXPECT_EQ(3u, figures("one").cached_blocks);
  EXPECT_EQ(1u, figures("one").expelled_blocks);
  EXPECT_EQ(4u, figures("two").cached_blocks);
  serve(text(3, 32), "one");
  EXPECT_EQ(3u, figures("one").cached_blocks);
  set_quota(PKV_NO_QUOTA, "one");
  serve(text(4, 64), "one");
  EXPECT_EQ(7u, figures("one").cached_blocks);
  set_quota(32, "none yet");
  serve(text(1, 64), "none yet");
  EXPECT_EQ(2u, figures("none yet").cached_blocks);
  CHECK(pkv_prefix_clear(cache_, "none yet", 8));
  serve(text(1, 64), "none yet");
  EXPECT_EQ(2u, figures("none yet").cached_blocks) << "a quota stays when nothing is left";
  set_quota(0, "none yet");
  serve(text(1, 64), "none yet");
  EXPECT_EQ(4u, figures("none yet").cached_blocks);
}

// Limits and counts are in tokens of full blocks, whatever the number of groups.
TEST_F(PrefixKeep, CountsTokens) {
  block_size_ = 32;
  pkv_prefix_config config = PrefixKeep::config();
  config.max_pinned_tokens = 63;
  config.max_tokens_per_salt = 159;
  make(16, config);
  serve(text(1, 170), "one");
  EXPECT_EQ(32u, pin(text(1, 96), "one")) << "a limit is rounded down to whole blocks";
  serve(text(2, 40), "one");
  auto stats = made<pkv_prefix_stats>();
  CHECK(pkv_prefix_get_stats(cache_, "one", 3, &stats));
  EXPECT_EQ(2u, stats.lookups) << "those that found nothing count";
  EXPECT_EQ(210u, stats.lookup_tokens);
  EXPECT_EQ(0u, stats.matched_tokens);
  EXPECT_EQ(160u, stats.published_tokens);
  EXPECT_EQ(32u, stats.expelled_tokens);
  EXPECT_EQ(128u, stats.cached_tokens) << "the quota";
  EXPECT_EQ(96u, stats.evictable_tokens);
  EXPECT_EQ(32u, stats.pinned_tokens);
  set_quota(UINT64_MAX - 1, "two");
  serve(text(2, 40), "two");
  set_quota(95, "one");
  CHECK(pkv_prefix_get_stats(cache_, nullptr, PKV_ALL_SALTS, &stats));
  EXPECT_EQ(96u, stats.expelled_tokens);
  EXPECT_EQ(96u, stats.cached_tokens);
  CHECK(pkv_prefix_clear(cache_, "two", 3));
  press(15);
  CHECK(pkv_prefix_get_stats(cache_, nullptr, PKV_ALL_SALTS, &stats));
  EXPECT_EQ(32u, stats.cleared_tokens);
  EXPECT_EQ(32u, stats.evicted_tokens);
  REFUSED(PKV_INVALID_ARGUMENT, pkv_prefix_set_quota(cache_, "one", 3, 31));
  EXPECT_STREQ("tokens is 31; it must be 0, or at least one block of 32 tokens", pkv_last_error());
}

// A router that adds up all events knows exactly what is cached.
TEST_F(PrefixKeep, EventsTellWhatIsCached) {
  pkv_prefix_config config = PrefixKeep::config();
  config.max_events = 8;
  config.max_tokens_per_salt = 48;
  make(6, config);
  uint64_t next = 0, lost = 99;
  pkv_prefix_event events[16];
  size_t n = 99;
  CHECK(pkv_prefix_read_events(cache_, &next, 16, events, &n, &lost));
  EXPECT_EQ(0u, n + lost);
  const uint64_t begin = next;

  const Text prompt = text(1, 48);
  serve(prompt, "a");
  uint64_t hashes[3];
  CHECK(pkv_prefix_hash_blocks(TextArg(prompt, "a"), 16, hashes));
  CHECK(pkv_prefix_read_events(cache_, &next, 2, events, &n, &lost));
  EXPECT_EQ(2u, n);
  CHECK(pkv_prefix_read_events(cache_, &next, 14, events + 2, &n, nullptr));
  ASSERT_EQ(1u, n);
  EXPECT_EQ(begin + 3, next);
  for (uint64_t i = 0; i < 3; i++) {
    EXPECT_EQ(begin + i, events[i].number);
    EXPECT_EQ(PKV_PREFIX_EVENT_PUBLISHED, events[i].kind);
    EXPECT_EQ(i * 16, events[i].position);
    EXPECT_EQ(hashes[i], events[i].hash);
    if (i > 0) {
      EXPECT_EQ(hashes[i - 1], events[i].parent);
    }
  }

  serve(text(2, 16), "a");
  CHECK(pkv_prefix_read_events(cache_, &next, 16, events, &n, &lost));
  ASSERT_EQ(2u, n);
  EXPECT_EQ(PKV_PREFIX_EVENT_EXPELLED, events[0].kind);
  EXPECT_EQ(hashes[2], events[0].hash);
  EXPECT_EQ(hashes[1], events[0].parent);
  EXPECT_EQ(PKV_PREFIX_EVENT_PUBLISHED, events[1].kind);

  press(6);
  CHECK(pkv_prefix_read_events(cache_, &next, 16, events, &n, &lost));
  ASSERT_EQ(3u, n);
  std::set<uint64_t> gone;
  for (size_t i = 0; i < n; i++) {
    EXPECT_EQ(PKV_PREFIX_EVENT_EVICTED, events[i].kind);
    gone.insert(events[i].hash);
  }
  EXPECT_TRUE(gone.contains(hashes[0]) && gone.contains(hashes[1]));

  serve(prompt, "b");
  clear();
  CHECK(pkv_prefix_read_events(cache_, &next, 16, events, &n, &lost));
  ASSERT_EQ(6u, n);
  EXPECT_EQ(PKV_PREFIX_EVENT_CLEARED, events[5].kind);

  for (int i = 0; i < 3; i++) serve(text(i, 48), "c");
  uint64_t late = begin + 2;
  CHECK(pkv_prefix_read_events(cache_, &late, 16, events, &n, &lost));
  EXPECT_EQ(8u, n) << "the last ones";
  EXPECT_EQ(late - 8 - (begin + 2), lost);
  EXPECT_EQ(late - 1, events[7].number);

  uint64_t all = 0;
  CHECK(pkv_prefix_read_events(cache_, &all, 16, events, &n, &lost));
  EXPECT_EQ(late, all);
  EXPECT_EQ(late - 8 - begin, lost);

  make(6, config);  // A reader of the cache before, whose place this one might have had.
  serve(prompt, "a");
  for (uint64_t foreign : {begin + 1, late + 1, late, uint64_t{1}})
    REFUSED(PKV_OUT_OF_RANGE, pkv_prefix_read_events(cache_, &foreign, 16, events, &n, &lost));
  late = 0;
  CHECK(pkv_prefix_read_events(cache_, &late, 16, events, &n, &lost));
  EXPECT_EQ(3u, n);
  CHECK(pkv_prefix_read_events(cache_, &late, 16, events, &n, &lost));
  EXPECT_EQ(0u, n);
}

// Routers compute the same hashes by themselves, and compare those of caches of several versions.
// These are xxhash.xxh3_64_intdigest of Python's package xxhash.
TEST(EventHashes, AreTheSameInEveryVersion) {
  Text prompt(40);
  for (size_t i = 0; i < prompt.size(); i++) prompt[i] = static_cast<int32_t>(1000 * i) - 7;
  const struct {
    const char* salt;
    uint64_t hashes[2];
  } known[] = {
      {"", {0xc250784961af87b9, 0xcd4f286bc5438d7b}},
      {"a", {0x639cde53235b9489, 0xf96b16df7c4ba734}},
  };
  for (const auto& [salt, expected] : known) {
    uint64_t hashes[2] = {};
    CHECK(pkv_prefix_hash_blocks(TextArg(prompt, salt), 16, hashes));
    EXPECT_EQ(expected[0], hashes[0]) << salt;
    EXPECT_EQ(expected[1], hashes[1]) << salt;
  }
}

TEST_F(PrefixKeep, EventsThatAreNotKept) {
  make(8, config());
  uint64_t next = 0;
  size_t n = 0;
  REFUSED(PKV_UNSUPPORTED, pkv_prefix_read_events(cache_, &next, 0, nullptr, &n, nullptr));
}

}  // namespace
}  // namespace cache_test::prefix_keep_test
