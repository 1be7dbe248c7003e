// Groups with a sliding window in the prefix index: where a match can end, what is evicted first,
// what the events say, and how many blocks a prompt takes.
#include <set>

#include "prefix_fixture.h"

namespace cache_test::prefix_window_test {
namespace {

Text first(const Text& text, size_t n) {
  return {text.begin(), text.begin() + static_cast<std::ptrdiff_t>(n)};
}

class PrefixWindow : public Prefix {
 protected:
  static constexpr uint32_t window = 32;  // tokens, in two blocks

  // Makes a cache with few blocks in the window group.
  void make_window(uint64_t blocks, uint64_t of_window_group) {
    auto config = made<pkv_prefix_config>({.eviction = PKV_EVICTION_LRU, .max_events = 4096});
    window_blocks_ = of_window_group;
    make(blocks, config, PKV_STORAGE_INTERNAL, window);
    known_.clear();
    next_ = 0;
  }

  uint64_t probe(const Text& text) {
    uint64_t cached = 99;
    CHECK(pkv_prefix_probe(cache_, TextArg(text), &cached));
    EXPECT_EQ(promised(text), cached);
    return cached;
  }

  // Returns where the probes of all prefixes of a text end, in blocks.
  std::vector<uint64_t> ends(const Text& text) {
    std::vector<uint64_t> result;
    for (size_t n = 16; n <= text.size(); n += 16) result.push_back(probe(first(text, n)) / 16);
    return result;
  }

 private:
  // Returns how much of a text is cached according to the events.
  uint64_t promised(const Text& text) {
    pkv_prefix_event events[512];
    for (size_t n = 512; n == 512;) {
      uint64_t lost = 0;
      CHECK(pkv_prefix_read_events(cache_, &next_, 512, events, &n, &lost));
      EXPECT_EQ(0u, lost);
      for (size_t i = 0; i < n; i++)
        if (events[i].kind == PKV_PREFIX_EVENT_PUBLISHED)
          EXPECT_TRUE(known_.insert(events[i].hash).second);
        else
          EXPECT_EQ(1u, known_.erase(events[i].hash));
    }
    std::vector<uint64_t> hashes(text.size() / 16);
    CHECK(pkv_prefix_hash_blocks(TextArg(text), 16, hashes.data()));
    while (!hashes.empty() && !known_.contains(hashes.back())) hashes.pop_back();
    return 16 * hashes.size();
  }

  std::set<uint64_t> known_;
  uint64_t next_ = 0;
};

TEST_F(PrefixWindow, TheSecondRequestWithASystemPromptHits) {
  make_window(64, 64);
  const Text system = text(1, 100);
  EXPECT_EQ(0u, serve(system + text(2, 60)));
  EXPECT_EQ(96u, probe(system + text(3, 60)));
  EXPECT_EQ(100u, serve(system + text(3, 60))) << "and the rows of the next block";
  EXPECT_EQ(100u, serve(system + text(4, 200)));
}

TEST_F(PrefixWindow, EveryShorterBeginningOfAPromptHits) {
  make_window(64, 64);
  const Text prompt = text(1, 160);
  serve(prompt);
  EXPECT_EQ((std::vector<uint64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), ends(prompt));
  for (const size_t n : {1u, 15u, 16u, 17u, 40u, 111u, 159u})
    EXPECT_EQ(n, serve(first(prompt, n) + text(9, 40))) << n;
}

TEST_F(PrefixWindow, APromptInChunksHitsAsOneInOneStep) {
  make_window(64, 64);
  const Text prompt = text(1, 320);
  {
    Session session = open(cache_);
    for (size_t n = 0; n < prompt.size(); n += 40) extend(session, first(prompt, n + 40));
    for (size_t n = 1; n <= 16; n++) extend(session, prompt + text(2, n));  // and an answer
  }
  for (const size_t n : {32u, 96u, 160u, 320u}) EXPECT_EQ(n, probe(first(prompt, n) + text(3, 40)));
  EXPECT_EQ(336u, probe(prompt + text(2, 16)));
}

// Blocks in the middle of a text are evicted first, the least recently used before others. A match
// then ends after the last complete window.
TEST_F(PrefixWindow, AMatchEndsWhereItsWindowIsWhole) {
  make_window(64, 10);
  const Text prompt = text(1, 160);
  serve(prompt);
  serve(text(2, 16));  // takes block 0 of the window group
  EXPECT_EQ((std::vector<uint64_t>{0, 0, 3, 4, 5, 6, 7, 8, 9, 10}), ends(prompt));
  EXPECT_EQ(80u, serve(first(prompt, 80)));  // blocks 3 and 4 are the last ones used, and an end
  serve(text(3, 16));                        // takes block 1
  EXPECT_EQ((std::vector<uint64_t>{0, 0, 0, 4, 5, 6, 7, 8, 9, 10}), ends(prompt));
  serve(text(4, 32));  // takes blocks 2 and 5
  EXPECT_EQ((std::vector<uint64_t>{0, 0, 0, 0, 5, 5, 5, 8, 9, 10}), ends(prompt));
  EXPECT_EQ(16u, probe(text(2, 16)));
  EXPECT_EQ(80u, serve(first(prompt, 112))) << "computes blocks 5 and 6 again";
  EXPECT_EQ(112u, probe(first(prompt, 112)));
  EXPECT_EQ(160u, probe(prompt));
}

// Every match needs the sinks, so they are not among the first to be evicted.
TEST_F(PrefixWindow, SinksStayAsTheEndsOfTextsDo) {
  sinks_ = 5;
  make_window(64, 10);
  const Text prompt = text(1, 160);
  serve(prompt);
  serve(text(2, 16));  // takes block 1 of the window group
  EXPECT_EQ((std::vector<uint64_t>{1, 1, 1, 4, 5, 6, 7, 8, 9, 10}), ends(prompt));
  serve(text(3, 48));  // takes blocks 2 to 4
  EXPECT_EQ((std::vector<uint64_t>{1, 1, 1, 1, 1, 1, 7, 8, 9, 10}), ends(prompt));
  EXPECT_EQ(16u, serve(first(prompt, 16) + text(4, 16)));
}

// Blocks of a text in use that no session needs are also evictable; those that a match at the end
// of a text needs come last.
TEST_F(PrefixWindow, BlocksBehindTheWindowsOfSessionsCanBeHad) {
  make_window(64, 12);
  const Text system = text(1, 64);
  Session one = open(cache_), two = open(cache_);
  extend(one, system);
  extend(one, system + text(2, 16));
  EXPECT_EQ(64u, match(two, system));
  extend(two, system + text(3, 96));
  extend(two, system + text(3, 97));
  // Session one holds its own blocks 2 to 4, and session two what its window saw before the last
  // step.
  Session greedy = open(cache_);
  uint64_t available = pool_stats_of(cache_, 1).free_blocks + stats_of(cache_).evictable_blocks;
  EXPECT_EQ(12u - 3 - 3, available);
  CHECK(pkv_session_reserve(greedy, 16 * available));
  CHECK(pkv_cache_validate(cache_));
  EXPECT_EQ(0u, pool_stats_of(cache_, 1).free_blocks);
  EXPECT_EQ(0u, stats_of(cache_).evictable_blocks);
  check_content(one, system + text(2, 16), 80 - window + 1);
  check_content(two, system + text(3, 97), 161 - window + 1);
}

// While a prompt is computed in chunks, a window group needs the blocks of the window and of one
// chunk.
TEST_F(PrefixWindow, APromptNeedsTheWindowAndAChunk) {
  for (const size_t chunk : {16u, 40u, 64u, 100u}) {
    const uint64_t bound = (window + chunk + 15) / 16 + 1;
    const Text prompt = text(1, 1000);
    // There is no other block.
    make_window(64, bound);
    {
      Session session = open(cache_);
      for (size_t n = 0; n < prompt.size(); n += chunk)
        extend(session, first(prompt, std::min(prompt.size(), n + chunk)));
      check_content(session, prompt, prompt.size() - window + 1);
    }
    EXPECT_EQ(992u, probe(prompt));
    // Others could have all but these.
    make_window(64, 64);
    Session session = open(cache_);
    for (size_t n = 0; n < prompt.size(); n += chunk) {
      extend(session, first(prompt, std::min(prompt.size(), n + chunk)));
      EXPECT_LE(pool_stats_of(cache_, 1).held_blocks - stats_of(cache_).evictable_blocks, bound);
    }
    EXPECT_EQ(992u, probe(prompt)) << "what is evictable is cached";
  }
}

}  // namespace
}  // namespace cache_test::prefix_window_test
