// Bugs that prefix indexes of other engines had, each with a test of its own that shows the right
// behaviour, and the number of the engine's issue.
#include <numeric>
#include <random>
#include <thread>

#include "prefix_fixture.h"

namespace cache_test::prefix_known_bugs_test {
namespace {

class PrefixKnownBugs : public Prefix {
 protected:
  uint64_t evictable() { return figures().evictable_blocks; }
};

// Both halves of a split node must stay in use while the node's user is, and a release must go to
// the right half (SGLang 38480, 36696).
TEST_F(PrefixKnownBugs, BothHalvesOfASplitNodeStayInUse) {
  make(8);
  const Text whole = text(1, 64);
  Session holder = open(cache_);
  extend(holder, whole);
  {
    Session other = open(cache_);
    EXPECT_EQ(
        32u, match(other, Text(whole.begin(), whole.begin() + 32)));  // splits what the holder uses
  }
  EXPECT_EQ(0u, evictable());
  Session greedy = open(cache_);
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_session_reserve(greedy, 5 * 16));
  check_content(holder, whole);
  CHECK(pkv_session_trim(holder, 40));
  EXPECT_EQ(1u, evictable()) << "the part behind the trim, and nothing else";
  CHECK(pkv_session_reserve(greedy, 5 * 16));
  check_content(holder, whole);
  EXPECT_EQ(0u, evictable()) << "it was taken";
  holder.close();
  EXPECT_EQ(3u, evictable());
}

// The count of evictable blocks must not fall below zero, nor have blocks twice (SGLang 35270).
TEST_F(PrefixKnownBugs, EvictableBlocksAreCountedOnce) {
  for (const bool first_closes_first : {true, false}) {
    make(32);
    const Text common = text(1, 48), one = common + text(2, 32), two = common + text(3, 16);
    Session first = open(cache_), second = open(cache_);
    extend(first, one);
    EXPECT_EQ(48u, match(second, two));
    extend(second, two);
    EXPECT_EQ(0u, evictable());
    (first_closes_first ? first : second).close();
    EXPECT_EQ(first_closes_first ? 2u : 1u, evictable());
    (first_closes_first ? second : first).close();
    EXPECT_EQ(6u, evictable());
    EXPECT_EQ(12u, stats_of(cache_).evictable_blocks);
    Session third = open(cache_);
    EXPECT_EQ(80u, match(third, one));
    EXPECT_EQ(1u, evictable());
    CHECK(pkv_session_suspend(third));
    EXPECT_EQ(6u, evictable());
    third.close();
    clear();
    EXPECT_EQ(0u, evictable());
  }
}

// Keys must not join salt and tokens ambiguously (vLLM 44701).
TEST_F(PrefixKnownBugs, SaltsAndTokensDoNotRunIntoEachOther) {
  make(64);
  const Text whole = text(1, 48);
  const auto bytes_of = [](const Text& tokens) {
    return std::string(reinterpret_cast<const char*>(tokens.data()),
                       tokens.size() * sizeof tokens[0]);
  };
  const Text first(whole.begin(), whole.begin() + 16), rest(whole.begin() + 16, whole.end());
  serve(whole, "");
  EXPECT_EQ(0u, serve(rest, bytes_of(first))) << "a salt that says what another text begins with";
  EXPECT_EQ(0u, serve(whole, std::string(1, '\0')));
  EXPECT_EQ(0u, serve(whole, std::string(2, '\0')));
  EXPECT_EQ(48u, serve(whole, ""));
  EXPECT_EQ(32u, serve(rest, bytes_of(first)));
}

// A block must not be evicted while blocks that follow it are still found (TensorRT-LLM 699).
TEST_F(PrefixKnownBugs, ABlockIsEvictedAfterThoseThatFollowIt) {
  for (const pkv_eviction eviction : {PKV_EVICTION_LEARNED, PKV_EVICTION_LRU}) {
    make(12, PKV_STORAGE_INTERNAL, eviction);
    const Text common = text(1, 32);
    for (int32_t end = 2; end < 7; end++) serve(common + text(end, 32));
    for (uint64_t taken = 1; taken <= 12; taken++) {
      SCOPED_TRACE(taken);
      {
        Session greedy = open(cache_);
        CHECK(pkv_session_reserve(greedy, taken * 16));
      }
      uint64_t longest = 0, found = 0;
      for (int32_t end = 2; end < 7; end++) {
        Session reader = open_salted("", PKV_PREFIX_MATCH);
        const uint64_t matched = match(reader, common + text(end, 32));
        longest = std::max(longest, std::min<uint64_t>(matched, 32));
        found += matched > 32 ? (matched - 32) / 16 : 0;
      }
      EXPECT_EQ(figures().cached_blocks, longest / 16 + found) << "every cached block is reached";
    }
  }
}

// When two threads publish one prefix at the same time, neither may free what the other uses
// (dynamo 8793).
TEST_F(PrefixKnownBugs, TwoThreadsCanPublishOnePrefix) {
  make(64);
  const Text whole = text(1, 64);
  alone_ = false;
  for (int round = 0; round < 20; round++) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; t++)
      threads.emplace_back([&] {
        try {
          Session session = open(cache_);
          extend(session, whole);
          check_content(session, whole);
        } catch (const std::exception& error) {
          ADD_FAILURE() << error.what();
        }
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(4u, figures().cached_blocks);
    EXPECT_EQ(4u, evictable());
    EXPECT_EQ(8u, pool_stats_of(cache_).held_blocks);
    CHECK(pkv_cache_validate(cache_));
    clear();
  }
}

// Different texts may have equal hashes. The hashes of events are public, and XXH3 is fast, so such
// texts are found in seconds (vLLM, CVE-2025-25183).
TEST_F(PrefixKnownBugs, EqualHashesOfDifferentTextsAreHarmless) {
  const auto with_first_block = [](int32_t token, const Text& second) {
    Text first(16);
    std::iota(first.begin(), first.end(), token);
    return first + second;
  };
  const Text equal[] = {
      with_first_block(5000,
                       {2000, 7148, 17, 7, 2100, 199, 7, 7, 2200, 36481, 74, 7, 2300, 5946, 18, 7}),
      with_first_block(
          6000, {2000, 22283, 28, 7, 2100, 6203, 7, 7, 2200, 16991, 65, 7, 2300, 4534, 22, 7}),
      with_first_block(
          7000, {2000, 46382, 24, 7, 2100, 3968, 82, 7, 2200, 33395, 32, 7, 2300, 34839, 38, 7})};
  for (const Text& each : equal) {
    uint64_t hashes[2];
    CHECK(pkv_prefix_hash_blocks(TextArg(each), 16, hashes));
    ASSERT_EQ(0x63aa354845ca634a, hashes[1]);
  }
  for (const pkv_eviction eviction : {PKV_EVICTION_LEARNED, PKV_EVICTION_LRU}) {
    make(12, PKV_STORAGE_INTERNAL, eviction);
    std::mt19937 random(1);
    for (int32_t i = 0; i < 1500; i++)
      serve(random() % 4 == 0 ? equal[random() % 3] : text(100 + i, 32));
  }
}

}  // namespace
}  // namespace cache_test::prefix_known_bugs_test
