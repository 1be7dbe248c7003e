// A block that counts as evictable is freed when it is evicted. So a session that reads a block of
// the prefix index keeps it in use.
#include <pagedkv/file.h>

#include <functional>
#include <numeric>
#include <thread>

#include "prefix_fixture.h"

namespace cache_test::prefix_evictable_test {
namespace {

class Evictable : public Prefix {
 protected:
  uint64_t evictable() { return figures().evictable_blocks; }
  uint64_t cached() { return figures().cached_blocks; }

  // Drops blocks [first, end) of a session in one group.
  static void drop(pkv_session session, uint32_t group, uint32_t first, uint32_t end) {
    std::vector<uint32_t> blocks(end - first);
    std::iota(blocks.begin(), blocks.end(), first);
    CHECK(pkv_session_drop_blocks(session, group, blocks.size(), blocks.data()));
  }

  // Returns how much of a text is cached, without using it.
  uint64_t probe(const Text& text) {
    uint64_t tokens = 0;
    CHECK(pkv_prefix_probe(cache_, TextArg(text), &tokens));
    return tokens;
  }

  // Takes all free and evictable blocks and gives them back. Returns how many there were.
  uint64_t take_all(uint64_t blocks) {
    Session greedy = open(cache_);
    for (uint64_t n = blocks; n > 0; n--)
      if (pkv_session_reserve(greedy, n * 16) == PKV_OK) return n;
    return 0;
  }
};

// There are four texts of one block. The second session shares seven tokens of the first text's
// block.
TEST_F(Evictable, AMatchInsideABlockEvictsNothing) {
  make(4);
  for (int32_t name = 0; name < 4; name++) serve(text(name, 16));
  Session session = open(cache_);
  EXPECT_EQ(7u, match(session, text(0, 7)));
  EXPECT_EQ(4u, cached());
  EXPECT_EQ(3u, evictable());
  check_content(session, text(0, 7));
  session.close();
  EXPECT_EQ(4u, evictable());
  for (int32_t name = 0; name < 4; name++) EXPECT_EQ(16u, serve(text(name, 16)));
}

// The first step needs one block, for a copy. It does not evict the block that it copies from,
// though that was used least recently, but another one.
TEST_F(Evictable, ABlockIsNotEvictedBeforeItIsCopied) {
  const Text start = text(0, 7);
  const std::vector<std::function<void(pkv_session)>> ways = {
      [&](pkv_session session) { EXPECT_EQ(7u, match(session, start)); },
      [&](pkv_session session) {
        uint64_t matched = 0;
        CHECK(pkv_session_admit(session, start.size(), start.data(), 8, &matched));
        EXPECT_EQ(7u, matched);
      },
      [&](pkv_session session) {
        EXPECT_EQ(16u, match(session, text(0, 16)));
        CHECK(pkv_session_trim(session, 7));
      },
      [&](pkv_session session) {
        EXPECT_EQ(9u, match(session, text(0, 9)));
        CHECK(pkv_session_trim(session, 7));
      },
      [&](pkv_session session) {
        uint64_t length = 0, total = 0;
        EXPECT_EQ(7u, match(session, start));
        CHECK(pkv_session_suspend(session));
        CHECK(pkv_session_resume(session, &length, &total));
        EXPECT_EQ(7u, length);
      }};
  for (size_t way = 0; way < ways.size(); way++)
    for (const bool forks : {false, true}) {
      SCOPED_TRACE(testing::Message() << "way " << way << (forks ? ", forked" : ""));
      make(4);
      for (int32_t name = 0; name < 4; name++) serve(text(name, 16));
      Session session = open(cache_);
      ways[way](session);
      if (forks) {
        Session child = fork(session);
        session.close();
        session = std::move(child);
      }
      // An aborted step puts the block back; it is kept still.
      begin(cache_, {session}, {1});
      CHECK(pkv_cache_validate(cache_));
      extend(session, start + text(9, 1));
      EXPECT_EQ(16u, probe(text(0, 16)));
      EXPECT_EQ(3u, cached());
      EXPECT_EQ(3u, evictable()) << "it was copied";
      check_content(session, start + text(9, 1));
    }
}

// A session that cannot be admitted leaves the text cached whose block it would have copied. One
// that reserves nothing is admitted.
TEST_F(Evictable, ARefusedAdmissionEvictsNothing) {
  make(4);
  serve(text(0, 16));
  Session busy = open(cache_);
  extend(busy, text(1, 40));
  Session session = open(cache_);
  const Text start = text(0, 7);
  uint64_t matched = 99;
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_session_admit(session, start.size(), start.data(), 24, &matched));
  EXPECT_EQ(16u, probe(text(0, 16)));
  EXPECT_EQ(1u, evictable());
  CHECK(pkv_session_admit(session, start.size(), start.data(), 0, &matched));
  EXPECT_EQ(7u, matched);
}

// No block is free for the copy, so the session writes to the block that it shares with the index.
TEST_F(Evictable, AMatchInsideTheOnlyBlock) {
  make(1);
  serve(text(0, 16));
  {
    Session session = open(cache_);
    EXPECT_EQ(7u, match(session, text(0, 7)));
  }
  EXPECT_EQ(16u, serve(text(0, 16)));
  Session session = open(cache_);
  EXPECT_EQ(7u, match(session, text(0, 7)));
  extend(session, text(0, 7) + text(1, 3));
  check_content(session, text(0, 7) + text(1, 3));
  EXPECT_EQ(0u, cached());
}

// The same where the session reserves blocks, or is resumed.
TEST_F(Evictable, AMatchInsideABlockOfAFullPool) {
  make(2);
  const Text whole = text(1, 32), start = Text(whole.begin(), whole.begin() + 20),
             other = start + text(2, 4);
  serve(whole);
  Session session = open(cache_);
  EXPECT_EQ(20u, match(session, start));
  CHECK(pkv_session_reserve(session, 32));
  EXPECT_EQ(16u, probe(whole));
  extend(session, other);
  CHECK(pkv_session_suspend(session));
  serve(whole);
  uint64_t length = 0, total = 0;
  CHECK(pkv_session_resume(session, &length, &total));
  EXPECT_EQ(20u, length);
  EXPECT_EQ(16u, probe(whole));
  extend(session, other);
  check_content(session, other);
}

// The match ends inside a node of several blocks, which it splits, and then after its end.
TEST_F(Evictable, AMatchInsideALongText) {
  make(8);
  const Text whole = text(1, 64);
  serve(whole);
  serve(text(2, 64));
  for (const size_t tokens : {24u, 7u, 60u}) {
    Session session = open_salted("", PKV_PREFIX_MATCH);
    EXPECT_EQ(tokens,
              match(session, Text(whole.begin(), whole.begin() + static_cast<int64_t>(tokens))));
    check_content(session, Text(whole.begin(), whole.begin() + static_cast<int64_t>(tokens)));
    session.close();
    EXPECT_EQ(evictable(), cached());
  }
  EXPECT_EQ(64u, serve(whole));
}

// A session that was trimmed to the middle of a block reads that block until it writes a copy of
// it.
TEST_F(Evictable, ATrimIntoABlock) {
  make(8);
  const Text whole = text(1, 64);
  Session session = open(cache_);
  extend(session, whole);
  CHECK(pkv_session_trim(session, 40));
  EXPECT_EQ(1u, evictable()) << "the block behind the one that the session ends in";
  EXPECT_EQ(5u, take_all(8));
  check_content(session, Text(whole.begin(), whole.begin() + 40));
  CHECK(pkv_session_trim(session, 36));
  EXPECT_EQ(0u, evictable());
  CHECK(pkv_session_trim(session, 20));
  EXPECT_EQ(1u, evictable());
  CHECK(pkv_session_trim(session, 16));
  EXPECT_EQ(2u, evictable()) << "the session ends with a block";
  CHECK(pkv_session_trim(session, 10));
  EXPECT_EQ(2u, evictable());
  Session child = fork(session);
  session.close();
  EXPECT_EQ(2u, evictable()) << "the child reads the first block";
  extend(child, Text(whole.begin(), whole.begin() + 10) + text(2, 2));
  EXPECT_EQ(3u, evictable()) << "the child has written a copy of it";
  check_content(child, Text(whole.begin(), whole.begin() + 10) + text(2, 2));
}

// A session that was trimmed into a cached block writes to it where no block is free for a copy.
TEST_F(Evictable, ATrimIntoABlockOfAFullPool) {
  for (const uint32_t window : {0u, 20u})
    for (const bool forks : {false, true}) {
      make(4, PKV_STORAGE_INTERNAL, PKV_EVICTION_LRU, window);
      const Text whole = text(1, 64), other = Text(whole.begin(), whole.begin() + 63) + text(2, 1);
      Session session = open(cache_);
      extend(session, whole);
      CHECK(pkv_session_trim(session, 63));
      Session child = forks ? fork(session) : Session();
      std::vector<pkv_session> list = {session};
      if (forks) list.push_back(child);
      const std::vector<uint32_t> ones(list.size(), 1);
      pkv_session victim = nullptr;
      size_t victims = 9;
      CHECK(pkv_batch_choose_victims(cache_, list.size(), list.data(), ones.data(), 1, &victim,
                                     &victims));
      EXPECT_EQ(forks ? 1u : 0u, victims) << "two sessions need two blocks";
      if (forks) CHECK(pkv_session_suspend(victim));
      extend(session, other);
      check_content(session, other, window == 0 ? 0 : 60);
      EXPECT_EQ(48u, probe(whole));
      session.close();
      child.close();
      EXPECT_EQ(64u, probe(other));
    }
}

// A step takes over a block in the middle of a cached text that nobody uses. What remains of the
// text is still a candidate for eviction, with what the policy knows of it.
TEST_F(Evictable, ATrimIntoTheMiddleOfATextOfAFullPool) {
  struct {
    pkv_eviction eviction;
    uint64_t active_parameters;
  } const policies[] = {
      {PKV_EVICTION_LRU, 0}, {PKV_EVICTION_LEARNED, 0}, {PKV_EVICTION_LEARNED, 1'000'000}};
  for (const auto& policy : policies) {
    make(4, made<pkv_prefix_config>(
                {.eviction = policy.eviction, .active_parameters = policy.active_parameters}));
    const Text whole = text(1, 32), other = Text(whole.begin(), whole.begin() + 24) + text(2, 1);
    Session session = open(cache_);
    extend(session, Text(32, PKV_UNKNOWN_TOKEN));
    Session child = fork(session);
    CHECK(pkv_session_set_tokens(session, 0, 32, whole.data()));
    CHECK(pkv_session_trim(child, 24));
    session.close();
    EXPECT_EQ(32u, probe(whole));
    Session busy = open(cache_);
    extend(busy, text(3, 32));
    const Batch step = begin(cache_, {child}, {1});
    CHECK(pkv_cache_validate(cache_));
    EXPECT_EQ(16u, probe(whole));
  }
}

// A pin keeps the block, but yields so that the session goes on.
TEST_F(Evictable, ATrimIntoAPinnedBlockOfAFullPool) {
  make(4, made<pkv_prefix_config>({.max_pinned_tokens = 64}));
  const Text whole = text(1, 64);
  Session session = open(cache_);
  extend(session, whole);
  EXPECT_EQ(64u, hint(cache_, PKV_HINT_PIN, whole).tokens);
  CHECK(pkv_session_trim(session, 63));
  const uint32_t one = 1;
  pkv_session list = session, victim;
  size_t victims = 9;
  CHECK(pkv_batch_choose_victims(cache_, 1, &list, &one, 1, &victim, &victims));
  EXPECT_EQ(0u, victims);
  begin(cache_, {session}, {1});
  EXPECT_EQ(48u, probe(whole));
  EXPECT_EQ(1u, figures().yielded_pins);
}

// Two sessions share a cached text. One drops most of it, and then the other one ends. Blocks
// without references can be taken, although the first one still reads later blocks.
TEST_F(Evictable, BlocksThatASessionDropped) {
  make(40);
  const Text whole = text(1, 640);
  Session forgetful = open(cache_);
  extend(forgetful, whole);
  {
    Session other = fork(forgetful);
    drop(forgetful, 0, 0, 37);
    EXPECT_EQ(0u, stats_of(cache_).evictable_blocks) << "the other session reads them";
  }
  EXPECT_EQ(37u, stats_of(cache_).evictable_blocks) << "those of one group";
  EXPECT_EQ(0u, evictable()) << "positions";
  CHECK(pkv_cache_validate(cache_));
  drop(forgetful, 1, 0, 37);
  EXPECT_EQ(2 * 37u, stats_of(cache_).evictable_blocks);
  EXPECT_EQ(37u, evictable());
  EXPECT_EQ(640u, probe(whole)) << "what is not needed yet";
  EXPECT_EQ(37u, take_all(40));
  EXPECT_EQ(0u, probe(whole));
  EXPECT_EQ(3u, info_of(forgetful).blocks / 2);
}

// The same if another text continues from one of the dropped blocks.
TEST_F(Evictable, BlocksThatASessionDroppedBeforeAnotherText) {
  make(40);
  const Text whole = text(1, 320), other = text(2, 160);
  Session forgetful = open(cache_);
  extend(forgetful, whole);
  serve(Text(whole.begin(), whole.begin() + 160) + other);
  for (const uint32_t group : {0u, 1u}) {
    drop(forgetful, group, 1, 8);
    drop(forgetful, group, 9, 18);
  }
  EXPECT_EQ(2u, cached() - evictable()) << "the first block, and the one that was not dropped";
  EXPECT_EQ(320u, probe(Text(whole.begin(), whole.begin() + 160) + other));
  EXPECT_EQ(36u, take_all(40));
  EXPECT_EQ(1u, cached());
}

// A stream that runs a given function at the first write.
struct Interrupted {
  std::function<void()> interruption;
  std::vector<unsigned char> bytes;

  static int64_t write(void* user, const void* from, uint64_t n) {
    Interrupted& self = *static_cast<Interrupted*>(user);
    if (self.bytes.empty()) std::thread(self.interruption).join();
    const auto* const data = static_cast<const unsigned char*>(from);
    self.bytes.insert(self.bytes.end(), data, data + n);
    return static_cast<int64_t>(n);
  }

  void save(pkv_cache cache) {
    auto to = made<pkv_stream>({.kind = PKV_STREAM_CALLBACKS, .write = write, .user = this});
    auto config = made<pkv_file_config>({.prefix_index = 1});
    CHECK(pkv_file_save(cache, 0, nullptr, &config, &to, nullptr));
  }

  void load(pkv_cache cache) {
    auto from = buffer_stream(bytes.data(), bytes.size());
    auto config = made<pkv_file_config>({.prefix_index = 1});
    size_t count = 0;
    CHECK(pkv_file_load(cache, &config, &from, 0, nullptr, nullptr, &count));
  }
};

// A save does not hold the blocks of the index: a step that needs them meanwhile gets them. The
// file has the part of each text that was still cached when it was read, with the right keys and
// values, and nothing of the texts that were written into the freed blocks.
TEST_F(Evictable, ASaveOfTheIndex) {
  for (const uint32_t window : {0u, 24u}) {
    make(60, PKV_STORAGE_INTERNAL, PKV_EVICTION_LRU, window);
    for (int32_t name = 0; name < 6; name++) serve(text(name, 160));
    ASSERT_EQ(60u, evictable());
    Session kept = open(cache_);
    EXPECT_EQ(160u, match(kept, text(3, 160)));
    Interrupted stream;
    stream.interruption = [&] {
      EXPECT_EQ(50u, evictable());
      serve(text(7, 25 * 16 + 3));
    };
    stream.save(cache_);
    EXPECT_EQ(49u, evictable()) << "26 were taken, and 25 of them are cached again";
    CHECK(pkv_cache_validate(cache_));
    kept.close();
    make(100, PKV_STORAGE_INTERNAL, PKV_EVICTION_LRU, window);
    stream.load(cache_);
    EXPECT_EQ(0u, serve(text(7, 25 * 16 + 3))) << "of after the save began";
    uint64_t found = 0;
    for (int32_t name = 0; name < 6; name++) {
      const uint64_t matched = serve(text(name, 160));
      EXPECT_TRUE(name < 3 || matched == 160) << name << ": " << matched;
      found += matched / 16;
    }
    EXPECT_TRUE(window > 0 || found == 60 - 26)
        << found << " blocks: 26 were taken before they were read";
  }
}

// A save reads every text, but that does not count as a use: the order of eviction stays as it was.
TEST_F(Evictable, ASaveOfTheIndexIsNoUse) {
  make(4);
  for (int32_t name = 0; name < 4; name++) serve(text(name, 16));
  Interrupted stream;
  stream.interruption = [] {};
  stream.save(cache_);
  serve(text(4, 32));
  for (const int32_t name : {2, 3}) {
    Session session = open_salted("", PKV_PREFIX_MATCH);
    EXPECT_EQ(16u, match(session, text(name, 16)));
  }
}

// Sessions share blocks whose token ids are unknown. If the sessions then get the ids of two texts,
// the blocks are cached as the first of them.
TEST_F(Evictable, ABlockIsCachedAsOneTextOnly) {
  for (const uint32_t window : {0, 40}) {
    make(8, PKV_STORAGE_INTERNAL, PKV_EVICTION_LRU, window);
    const Text one = text(1, 32), other = text(2, 32);
    Session session = open(cache_);
    extend(session, Text(32, PKV_UNKNOWN_TOKEN));
    Session child = fork(session);
    CHECK(pkv_session_set_tokens(session, 0, 32, one.data()));
    CHECK(pkv_session_set_tokens(child, 0, 32, other.data()));
    CHECK(pkv_cache_validate(cache_));
    session.close();
    EXPECT_EQ(6u, take_all(8));
    child.close();
    EXPECT_EQ(32u, probe(one));
    EXPECT_EQ(0u, probe(other));
    EXPECT_EQ(8u, take_all(8));
  }
}

// Sessions that have only matched are saved with the cached blocks that they read, and read them
// again when they are loaded.
TEST_F(Evictable, AMatchThatWasLoaded) {
  make(8);
  const Text whole = text(1, 64);
  serve(whole);
  std::vector<unsigned char> bytes(1 << 20);
  auto stream = buffer_stream(bytes.data(), bytes.size());
  auto config = made<pkv_file_config>({.prefix_index = 1});
  {
    Session session = open_salted("", PKV_PREFIX_MATCH);
    EXPECT_EQ(64u, match(session, whole));
    CHECK(pkv_session_trim(session, 40));
    const pkv_file_item item = {session, nullptr, 0};
    CHECK(pkv_file_save(cache_, 1, &item, &config, &stream, &stream.size));
  }
  make(8);
  pkv_session loaded;
  size_t count;
  CHECK(pkv_file_load(cache_, &config, &stream, 1, &loaded, nullptr, &count));
  Session session(loaded);
  EXPECT_EQ(2u, evictable()) << "all but what the session reads: its third block is a copy";
  check_content(session, Text(whole.begin(), whole.begin() + 40));
  EXPECT_EQ(5u, take_all(8));
  session.close();
  EXPECT_EQ(evictable(), cached());
}

}  // namespace
}  // namespace cache_test::prefix_evictable_test
