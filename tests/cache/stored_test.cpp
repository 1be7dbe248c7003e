// Blocks that leave a cache's memory go to a store. They come back bit for bit, or not at all.
#include <chrono>
#include <future>
#include <set>
#include <thread>

#include "../store/support.h"
#include "tier.h"

namespace cache_test::stored_test {
namespace {

TEST_F(TierTest, ACacheTakesTheStoreUnlessCreatingFails) {
  config_.buffer_bytes = UINT64_MAX;
  auto prefix = made<pkv_prefix_config>();
  ModelConfig config = config_of({}, 16);
  config.prefix = &prefix;
  config.store = &config_;
  pkv_cache cache = nullptr;
  EXPECT_EQ(PKV_INVALID_ARGUMENT, pkv_cache_create(&config, &cache));
  EXPECT_EQ(sizeof table_, table_.struct_size);
  config_.buffer_bytes = 0;
  make(16);
  EXPECT_EQ(sizeof table_, table_.struct_size);
  EXPECT_EQ(nullptr, table_.close);
  CHECK(pkv_store_close(&table_));
  EXPECT_EQ(0u, memory_.closed) << "the cache has it";
}

TEST_F(TierTest, WhatIsEvictedComesBack) {
  make(8);
  const Text whole = text(1, 70);
  serve(whole);
  flush();
  EXPECT_EQ(8u, stats().written_items) << "four full blocks in two groups";
  press(8);
  check_found(whole, 0);
  EXPECT_EQ(64u, fetch(whole));
  EXPECT_EQ(8u, stats().read_items);
  check_found(whole, 64);
  EXPECT_EQ(64u, fetch(whole)) << "it is there already";
  EXPECT_EQ(8u, stats().asked_items);
}

TEST_F(TierTest, EvenThreeBlocksAreACache) {
  make(3);
  store_away(text(1, 40));
  EXPECT_EQ(32u, fetch(text(1, 40)));
}

TEST_F(TierTest, OnlyWhatIsNewIsWritten) {
  make(32);
  const Text first = text(1, 64), second = first + text(2, 32);
  serve(first);
  serve(second);
  serve(second);
  flush();
  EXPECT_EQ(12u, stats().written_items);
  EXPECT_EQ(12u, memory_.items().size());
  make(32);
  serve(second);
  flush();
  EXPECT_EQ(0u, stats().written_items) << "another run finds all of it in the store";
  EXPECT_EQ(12u, stats().known_items);
}

TEST_F(TierTest, ARestartedProcessGoesOn) {
  make(16);
  const Text whole = text(1, 64);
  serve(whole);
  make(16);  // The old cache writes what is queued before it ends.
  EXPECT_EQ(0u, figures().cached_blocks);
  EXPECT_EQ(64u, fetch(whole + text(2, 40)));
  check_found(whole, 64);
  EXPECT_EQ(32u, fetch(Text(whole.begin(), whole.begin() + 40)));
}

TEST_F(TierTest, OthersFindNothing) {
  make(16);
  const Text whole = text(1, 64);
  store_away(whole, "alice");
  EXPECT_EQ(0u, fetch(whole));
  EXPECT_EQ(0u, fetch(whole, "bob"));
  EXPECT_EQ(64u, fetch(whole, "alice"));
  const auto found = [&] {
    make(16);
    return fetch(whole, "alice");
  };
  config_.fingerprint = "another model";
  config_.fingerprint_size = 13;
  EXPECT_EQ(0u, found());
  config_.fingerprint_size = 0;
  dtype_ = PKV_F16;
  EXPECT_EQ(0u, found());
  dtype_ = PKV_F32;
  rotation_ = PKV_ROTATION_HADAMARD;
  EXPECT_EQ(0u, found());
  rotation_ = PKV_ROTATION_NONE;
  block_size_ = 32;
  EXPECT_EQ(0u, found());
  block_size_ = 16;
  if (!store::keys_work()) return;
  const std::string secret(32, 's');
  config_.secret_key = secret.data();
  config_.secret_key_size = secret.size();
  EXPECT_EQ(0u, found());
  store_away(whole, "alice");
  EXPECT_EQ(64u, fetch(whole, "alice"));
  config_.secret_key_size = 31;
  EXPECT_EQ(0u, found());
  config_.secret_key = nullptr;
  config_.secret_key_size = 0;
  EXPECT_EQ(64u, found());
}

// With a key nobody can read or change a block, and an item is accepted only under its own name.
class EncryptedTier : public TierTest {
 protected:
  void SetUp() override {
    config_.secret_key = "a key of 24 secret bytes";
    config_.secret_key_size = 24;
    try {
      make(16);
    } catch (const std::runtime_error&) {
      config_.store = nullptr;
      store_ = nullptr;
      GTEST_SKIP() << "this build is without libsodium or libcrypto";
    }
  }
};

TEST_F(EncryptedTier, NothingIsInTheClear) {
  const Text whole = text(1, 64);
  store_away(whole, "alice");
  const auto first = memory_.items();
  for (const auto& [name, value] : first)
    memory_.replace(name, {});  // Another machine could have lost them like this.
  make(16);
  store_away(whole, "alice");
  for (const auto& [name, value] : memory_.items()) {
    const auto& before = first.at(name);
    ASSERT_EQ(before.size(), value.size());
    size_t same = 0;
    for (size_t i = 16; i < value.size(); i++) same += value[i] == before[i];
    EXPECT_LT(same, value.size() / 32) << "the same block twice, and both look alike";
    const auto* const tokens = reinterpret_cast<const unsigned char*>(whole.data());
    for (size_t i = 0; i < whole.size(); i += 16)
      EXPECT_EQ(value.end(),
                std::search(value.begin(), value.end(), tokens + 4 * i, tokens + 4 * (i + 2)));
    EXPECT_EQ(value.end(),
              std::search(value.begin() + 16, value.end(), name.begin(), name.begin() + 8));
  }
}

TEST_F(EncryptedTier, EveryFlippedBitAndEveryOtherNameIsAMiss) {
  const Text whole = text(1, 16);
  store_away(whole);
  const auto items = memory_.items();
  uint64_t corrupt = 0;
  const auto refuse = [&](const std::string& name, const std::vector<unsigned char>& value) {
    memory_.replace(name, value);
    EXPECT_EQ(0u, fetch(whole));
    EXPECT_EQ(++corrupt, stats().corrupt_items);
    memory_.replace(name, items.at(name));
  };
  auto [name, value] = *items.begin();
  for (size_t byte = 0; byte < value.size(); byte++) {
    value[byte] ^= static_cast<unsigned char>(1u << byte % 8);
    refuse(name, value);
    value[byte] ^= static_cast<unsigned char>(1u << byte % 8);
  }
  // Two items of equal size are exchanged.
  for (const auto& [other, bytes] : items)
    if (other != name && bytes.size() == value.size()) refuse(name, bytes);
  EXPECT_EQ(16u, fetch(whole));
  check_found(whole, 16);
}

TEST_F(TierTest, EveryStoredTypeComesBackBitForBit) {
  for (const pkv_dtype dtype : stored_dtypes) {
    SCOPED_TRACE(dtype);
    dtype_ = dtype;
    rotation_ = dtype % 2 == 0 ? PKV_ROTATION_HADAMARD : PKV_ROTATION_NONE;
    make(16);
    const Text whole = text(1, 64);
    Session session = open(cache_);
    extend(session, whole);
    std::vector<KeysValues> before;
    for (uint32_t layer = 0; layer < 2; layer++)
      before.push_back(materialize(session, layer, model_, 0, 64));
    session.close();
    flush();
    clear();
    EXPECT_EQ(64u, fetch(whole));
    Session again = open(cache_);
    EXPECT_EQ(64u, match(again, whole));
    for (uint32_t layer = 0; layer < 2; layer++) {
      const KeysValues found = materialize(again, layer, model_, 0, 64);
      EXPECT_TRUE(found.k == before[layer].k && found.v == before[layer].v) << "layer " << layer;
    }
  }
}

TEST_F(TierTest, ASuspendedSessionComesBackThroughTheStore) {
  config_.wait_ms = long_time;
  make(8);
  const Text prompt = text(1, 100);
  Session session = open(cache_);
  extend(session, prompt);
  CHECK(pkv_session_suspend(session));
  flush();
  press(8);
  EXPECT_EQ(0u, figures().cached_blocks);
  uint64_t length = 0, total = 0;
  CHECK(pkv_session_resume(session, &length, &total));
  EXPECT_EQ(96u, length);
  EXPECT_EQ(100u, total);
  extend(session, prompt);
  check_content(session, prompt);
}

TEST_F(TierTest, APrefetchForASuspendedSession) {
  make(8);
  const Text prompt = text(1, 100);
  Session session = open_salted("s");
  extend(session, prompt);
  CHECK(pkv_session_suspend(session));
  flush();
  press(8);
  EXPECT_EQ(96u, fetch(prompt, "s"));
  uint64_t length = 0, total = 0;
  CHECK(pkv_session_resume(session, &length, &total));
  EXPECT_EQ(96u, length);
}

TEST_F(TierTest, AMatchThatWaits) {
  config_.wait_ms = long_time;
  make(16);
  const Text whole = text(1, 64);
  store_away(whole);
  check_found(whole + text(2, 9), 64);
}

// A request that cannot have its blocks tries in each step, and the store is not asked each time.
TEST_F(TierTest, TheStoreIsAskedOnceTheBlocksAreThere) {
  config_.wait_ms = long_time;
  for (const uint32_t window : {0u, 32u}) {
    make(10, window);
    const Text whole = text(1, 96);
    store_away(whole);
    const Session session = open(cache_);
    uint64_t found = 0, total = 0;
    for (const bool resumes : {false, true}) {
      const auto call = [&] {
        return resumes ? pkv_session_resume(session, &found, &total)
                       : pkv_session_admit(session, 96, whole.data(), 7 * 16, &found);
      };
      Session other = open(cache_, 6 * 16);
      const uint64_t asked = stats().asked_items;
      for (int step = 0; step < 5; step++) REFUSED(PKV_OUT_OF_BLOCKS, call());
      EXPECT_EQ(asked, stats().asked_items) << window << ", resumes: " << resumes;
      other.close();
      EXPECT_EQ(96u, (CHECK(call()), found));
      CHECK(pkv_session_suspend(session));
      flush(), clear();
    }
  }
}

TEST_F(TierTest, AWindowGroupGetsItsLastWindow) {
  make(32, 32);
  const Text whole = text(1, 160);
  store_away(whole);
  EXPECT_EQ(160u, fetch(whole));
  EXPECT_EQ(10u + 2, stats().read_items) << "of the window group the last window only";
  check_found(whole, 160);
  clear();
  EXPECT_EQ(96u, fetch(Text(whole.begin(), whole.begin() + 100)))
      << "a prompt in one step still had the window there";
  EXPECT_EQ(160u, fetch(whole + text(2, 20)));
}

// Blocks that wait to be written are evicted last, but they are evicted.
TEST_F(TierTest, ASlowStoreCostsNoBlocks) {
  config_.max_queued_tokens = 8 * 16;
  make(8);
  memory_.hold();
  for (int32_t name = 1; name <= 3; name++) serve(text(name, 32));
  EXPECT_EQ(6u, stats().queued_blocks);
  uint64_t queued = 0;
  CHECK(pkv_cache_flush_store(cache_, 0, &queued));
  EXPECT_EQ(6u * 16, queued);
  EXPECT_EQ(0u, figures().evictable_blocks);
  Session greedy = open(cache_);
  CHECK(pkv_session_reserve(greedy, 8 * 16));
  EXPECT_EQ(0u, figures().cached_blocks);
  CHECK(pkv_cache_validate(cache_));
  memory_.go_on();
  flush();
  auto in_tokens = made<pkv_store_stats>();
  CHECK(pkv_cache_get_store_stats(cache_, &in_tokens));
  EXPECT_EQ(6u * 16, in_tokens.lost_tokens);
}

TEST_F(TierTest, AFullQueueTakesNoMore) {
  config_.max_queued_tokens = 3 * 16;
  make(32);
  memory_.hold();
  for (int32_t name = 1; name <= 4; name++) serve(text(name, 32));
  EXPECT_LE(stats().queued_blocks, 2u + 4) << "one is being written, two wait";
  EXPECT_GE(stats().unwritten_blocks, 2u);
  uint64_t queued = 0;
  CHECK(pkv_cache_flush_store(cache_, 20, &queued));
  EXPECT_GT(queued, 0u) << "a flush ends";
  memory_.go_on();
  flush();
}

TEST_F(TierTest, AStoreThatIsGoneCostsHitsOnly) {
  make(16);
  const Text whole = text(1, 64);
  store_away(whole);
  memory_.error = EIO;
  EXPECT_EQ(0u, fetch(whole));
  EXPECT_EQ(1u, stats().failures);
  EXPECT_EQ(1u, stats().down);
  serve(text(2, 64));
  flush();
  EXPECT_GE(stats().unwritten_blocks, 4u);
  const uint64_t failures = stats().failures;
  for (int i = 0; i < 50; i++) EXPECT_EQ(0u, fetch(whole + text(i, 16)));
  EXPECT_LE(stats().failures, failures + 10) << "it is left alone for a while";
  memory_.error = 0;
  for (int i = 0; i < 600 && stats().down != 0; i++)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(64u, fetch(whole));
  check_found(whole, 64);
}

TEST_F(TierTest, AFullStoreTakesWhatItCan) {
  make(16);
  memory_.capacity = 3;
  serve(text(1, 64));
  flush();
  EXPECT_EQ(3u, stats().written_items);
  EXPECT_EQ(3u, stats().unwritten_blocks);
  memory_.capacity = UINT64_MAX;
  serve(text(1, 64));
  flush();
  EXPECT_EQ(8u, stats().written_items);
}

// One put has eight items, of four blocks. The store refuses one item of the second block and both
// of the last one.
class RefusedItems : public TierTest {
 protected:
  const Text whole_ = text(1, 64);

  void make_with_refused_items() {
    make(16);
    std::set<std::string> names;
    for (const size_t blocks : {1, 2, 3, 4}) {
      store_away(Text(whole_.begin(), whole_.begin() + static_cast<ptrdiff_t>(16 * blocks)));
      size_t refused = blocks == 2 ? 1 : blocks == 4 ? 2 : 0;
      for (const auto& [name, bytes] : memory_.items())
        if (names.insert(name).second && refused > 0) memory_.refuse(name), refused--;
    }
    for (const std::string& name : names) memory_.lose(name);
    memory_.puts = memory_.put_items = memory_.touched_items = 0;
    make(16);
  }
  void expect_five_of_eight() {
    EXPECT_EQ(1u, memory_.puts);
    EXPECT_EQ(5u, memory_.items().size());
    EXPECT_EQ(5u, stats().written_items);
    EXPECT_EQ(2u, stats().unwritten_blocks);
    uint64_t bytes = 0;
    for (const auto& [name, value] : memory_.items()) bytes += value.size();
    EXPECT_EQ(bytes, stats().written_bytes);
    EXPECT_EQ(1u, stats().failures);
    EXPECT_EQ(0u, stats().down);
  }
};

TEST_F(RefusedItems, CostTheirBlocksOnly) {
  make_with_refused_items();
  serve(whole_);
  flush();
  expect_five_of_eight();
  EXPECT_EQ(8u, memory_.touched_items);
  memory_.refuse_nothing();
  serve(whole_);
  flush();
  EXPECT_EQ(8u + 3, memory_.touched_items) << "the others are known";
  EXPECT_EQ(8u + 3, memory_.put_items) << "only what was refused is put again";
  EXPECT_EQ(8u, stats().written_items);
  EXPECT_EQ(2u, stats().unwritten_blocks) << "as before";
  clear();
  EXPECT_EQ(64u, fetch(whole_));
  check_found(whole_, 64);
}

TEST_F(RefusedItems, LeaveWhatComesBeforeThem) {
  make_with_refused_items();
  store_away(whole_);
  expect_five_of_eight();
  EXPECT_EQ(16u, fetch(whole_));
  check_found(whole_, 16);
}

TEST_F(RefusedItems, AreNotStoredAlthoughTheStoreCountsThem) {
  make_with_refused_items();
  memory_.counts_all = true;
  serve(whole_);
  flush();
  expect_five_of_eight();
}

TEST_F(RefusedItems, CostAllBlocksIfTheStoreDoesNotNameThem) {
  make_with_refused_items();
  memory_.keeps_sizes = true;
  serve(whole_);
  flush();
  EXPECT_EQ(5u, memory_.items().size());
  EXPECT_EQ(0u, stats().written_items);
  EXPECT_EQ(0u, stats().written_bytes);
  EXPECT_EQ(4u, stats().unwritten_blocks);
  EXPECT_EQ(1u, stats().failures);
  EXPECT_EQ(1u, stats().down);
}

// A text is written from its end to its beginning. An item that the store never takes, of a block
// in the middle, costs the blocks from that one on.
TEST_F(TierTest, AnItemThatTheStoreRefusesKeepsNoEarlierOnesAway) {
  config_.buffer_bytes = 1;  // Blocks are written one by one.
  make(16);
  const Text whole = text(1, 80);
  store_away(Text(whole.begin(), whole.begin() + 48));
  const auto beginning = memory_.items();
  store_away(Text(whole.begin(), whole.begin() + 64));
  for (const auto& [name, bytes] : memory_.items()) {
    if (!beginning.contains(name)) memory_.refuse(name);
    if (!beginning.contains(name)) break;  // the one of one group
  }
  for (const auto& [name, bytes] : memory_.items()) memory_.lose(name);
  make(16);
  store_away(whole);
  EXPECT_EQ(9u, stats().written_items) << "all but one";
  EXPECT_EQ(1u, stats().unwritten_blocks);
  EXPECT_EQ(1u, stats().failures);
  EXPECT_EQ(0u, stats().down);
  EXPECT_EQ(48u, fetch(whole));
}

// Wrong bytes are always a miss. The next time the item is right again.
TEST_F(TierTest, WrongBytesAreMisses) {
  make(16);
  const Text whole = text(1, 32);
  store_away(whole);
  const auto right = memory_.items();
  ASSERT_EQ(4u, right.size());
  uint64_t corrupt = 0;
  const auto refuse = [&](const std::string& key, std::vector<unsigned char> value,
                          const char* what) {
    for (const auto& [name, bytes] : right) memory_.replace(name, bytes);
    memory_.replace(key, std::move(value));
    ASSERT_LT(fetch(whole), 32u) << what;
    clear();
    corrupt++;
  };
  for (const auto& [key, value] : right) {
    for (size_t bit = 0; bit < value.size() * 8; bit += bit < 1024 ? 1 : 37) {
      std::vector<unsigned char> flipped = value;
      flipped[bit / 8] = static_cast<unsigned char>(flipped[bit / 8] ^ 1 << bit % 8);
      refuse(key, flipped, "a bit");
    }
    refuse(key, right.begin()->second == value ? right.rbegin()->second : right.begin()->second,
           "another block's value");
  }
  EXPECT_EQ(corrupt, stats().corrupt_items);
  std::vector<unsigned char> longer = right.begin()->second;
  longer.push_back(0);
  for (const std::vector<unsigned char>& value :
       {std::vector<unsigned char>{}, std::vector<unsigned char>(1), longer}) {
    memory_.replace(right.begin()->first, value);
    EXPECT_LT(fetch(whole), 32u) << value.size() << " bytes";
    clear();
  }
  for (const auto& [name, bytes] : right) memory_.replace(name, bytes);
  EXPECT_EQ(32u, fetch(whole));
  check_found(whole, 32);
}

TEST_F(TierTest, PrefetchesCanBeGivenUp) {
  make(64);
  const Text first = text(1, 64), second = text(2, 64);
  store_away(first);
  store_away(second);
  memory_.hold();
  for (const Text* each : {&first, &second}) prefetch(*each);
  uint64_t pending = 99;
  EXPECT_EQ(0u, wait(second, "", 20, &pending)) << "a wait ends";
  EXPECT_EQ(1u, pending);
  cancel(second);
  wait(second, "", 0, &pending);
  EXPECT_EQ(0u, pending);
  memory_.go_on();
  EXPECT_EQ(0u, wait(second));
  EXPECT_EQ(64u, wait(first, "", long_time, &pending));
  EXPECT_EQ(0u, pending);
}

// The first of four reads is in progress when its prefetch is cancelled. Its blocks are added, and
// no other read follows (vLLM 46283: its blocks leaked).
TEST_F(TierTest, APrefetchThatIsGivenUpWhileItReadsAddsWhatItRead) {
  config_.buffer_bytes = 1;  // Blocks are read one by one.
  make(64);
  const Text whole = text(1, 64);
  store_away(whole);
  const uint64_t gets = memory_.gets;
  memory_.hold_gets();
  prefetch(whole);
  memory_.await_held_call();
  cancel(whole);
  EXPECT_EQ(0u, wait(whole)) << "there is nothing to wait for";
  memory_.go_on();
  fetch(text(2, 16));  // The reader takes this one when it is done with the other.
  EXPECT_EQ(gets + 1, memory_.gets);
  check_found(whole, 16);
  EXPECT_EQ(64u, fetch(whole));
  check_found(whole, 64);
}

// Only the one that the reader works on still has a place among the requests.
TEST_F(TierTest, PrefetchesThatWereGivenUpMakeRoomForOthers) {
  make(64);
  const Text first = text(1, 64), beginning = text(2, 16);
  store_away(first);
  memory_.hold_gets();
  prefetch(first);
  memory_.await_held_call();
  for (int32_t name = 10; name < 73; name++) prefetch(beginning + text(name, 16));
  cancel(beginning);
  for (int32_t name = 10; name < 73; name++) prefetch(text(name, 16));
  for (int32_t name = 10; name < 73; name++) EXPECT_EQ(1u, count_pending(text(name, 16))) << name;
  memory_.go_on();
  EXPECT_EQ(64u, wait(first));
}

// A thread that waits for a prefetch continues when the prefetch is cancelled, although the store
// is blocked.
TEST_F(TierTest, WaitersOfAPrefetchThatWasGivenUpGoOn) {
  make(64);
  const auto wait_for = [&](const Text& each) {
    return std::async(std::launch::async, [this, each] { return wait(each); });
  };
  const auto ends = [](std::future<uint64_t>& waiter) {
    return waiter.wait_for(std::chrono::milliseconds(long_time / 2)) == std::future_status::ready;
  };
  const Text first = text(1, 64), cancelled = text(2, 64), dropped = text(3, 64);
  store_away(first);
  memory_.hold();
  prefetch(first);
  prefetch(cancelled);
  std::future<uint64_t> waiter = wait_for(cancelled);
  cancel(cancelled);
  EXPECT_TRUE(ends(waiter)) << "cancelled";
  for (int32_t name = 10; name < 72; name++) prefetch(text(name, 64));
  prefetch(dropped);
  ASSERT_EQ(1u, count_pending(dropped));
  waiter = wait_for(dropped);
  prefetch(first, "another");  // one more than the cache keeps
  EXPECT_TRUE(ends(waiter)) << "dropped";
  memory_.go_on();
}

TEST_F(TierTest, PrefetchesOfOneSaltDropNoneOfOthers) {
  make(64);
  memory_.hold();
  prefetch(text(1, 64), "one");
  prefetch(text(1, 64), "two");
  for (int32_t name = 2; name < 100; name++) prefetch(text(name, 64), "one");
  EXPECT_EQ(1u, count_pending(text(1, 64), "two"));
  for (const int32_t name : {1, 2, 62, 63}) EXPECT_EQ(1u, count_pending(text(name, 64), "one"));
  for (const int32_t name : {64, 99}) EXPECT_EQ(0u, count_pending(text(name, 64), "one"));
  prefetch(text(1, 64), "three");
  EXPECT_EQ(1u, count_pending(text(1, 64), "three"));
  EXPECT_EQ(0u, count_pending(text(63, 64), "one")) << "the newest of the salt that has the most";
  EXPECT_EQ(1u, count_pending(text(62, 64), "one"));
}

// The store is asked for the texts of one salt, of which it has none, and is stopped when it reads
// that of the other.
TEST_F(TierTest, PrefetchesOfSaltsTakeTurns) {
  make(64);
  const Text whole = text(1, 64);
  store_away(whole, "two");
  memory_.hold();
  for (int32_t name = 10; name < 40; name++) prefetch(text(name, 64), "one");
  prefetch(whole, "two");
  const uint64_t gets = memory_.gets;
  memory_.hold_gets();
  while (memory_.gets == gets) std::this_thread::yield();
  EXPECT_EQ(3u * 8, stats().asked_items) << "items of two texts before it, and its own";
  memory_.go_on();
  EXPECT_EQ(64u, wait(whole, "two"));
}

// The requests of a salt that are left move up to the turns of those that were cancelled.
TEST_F(TierTest, CancelledPrefetchesTakeNoTurns) {
  make(64);
  const Text whole = text(1, 64);
  store_away(whole);
  memory_.hold();
  prefetch(text(9, 64), "another");  // The reader works on this one.
  for (int32_t name = 10; name < 20; name++) prefetch(text(name, 64));
  prefetch(whole);
  for (int32_t name = 20; name < 30; name++) prefetch(text(name, 64), "two");
  for (int32_t name = 10; name < 20; name++) cancel(text(name, 64));
  const uint64_t gets = memory_.gets;
  memory_.hold_gets();
  while (memory_.gets == gets) std::this_thread::yield();
  EXPECT_EQ(3u * 8, stats().asked_items) << "items of one text of each salt";
  memory_.go_on();
  EXPECT_EQ(64u, wait(whole));
}

// Blocks that the reader matches in memory are counted as held at once.
TEST_F(TierTest, ValidatesWhileTheReaderMatches) {
  make(64);
  const Text whole = text(1, 512), most(whole.begin(), whole.begin() + 480);
  store_away(whole);
  for (int i = 0; i < 300; i++) {
    EXPECT_EQ(480u, fetch(most));
    prefetch(whole);
    for (uint64_t cached = 0; cached < 512;) {
      CHECK(pkv_cache_validate(cache_));
      CHECK(pkv_prefix_probe(cache_, TextArg(whole), &cached));
    }
    EXPECT_EQ(512u, fetch(whole));
    clear();
  }
}

// A step that needs the blocks of a prefetch waits for one read, not for the whole prefetch.
TEST_F(TierTest, AStepDoesNotWaitForALongPrefetch) {
  constexpr uint64_t blocks = 400;
  block_size_ = 256;
  config_.buffer_bytes = 1 << 28;  // The whole text is read at once.
  make(blocks);
  const Text whole = text(1, blocks * block_size_);
  {
    Session session = open(cache_);
    extend(session, whole);
  }
  flush();
  uint64_t read = 2 * blocks;
  for (int round = 0; round < 50 && read == 2 * blocks; round++) {
    clear();
    const uint64_t before = stats().read_items, bytes = stats().read_bytes;
    prefetch(whole);
    while (stats().read_bytes == bytes) std::this_thread::yield();
    // This happens in the middle of the read, unless the machine was too busy to run this thread.
    press(blocks);
    read = stats().read_items - before;
    wait(whole);
  }
  EXPECT_LT(read, 2 * blocks) << "it waited until all of the text was there";
}

// The store has lost one item. Without one of the full group a text ends there. Without one of the
// window group it ends where the last window of 24 tokens, two blocks, is complete.
TEST_F(TierTest, TheLongestBeginningWithItsLastWindow) {
  make(64, 24);
  const Text whole = text(1, 8 * 16 + 5);
  store_away(whole);
  const auto items = memory_.items();
  ASSERT_EQ(16u, items.size());
  std::multiset<uint64_t> found, expected;
  for (const auto& [key, value] : items) {
    memory_.lose(key);
    make(64, 24);
    found.insert(fetch(whole) / 16);
    memory_.replace(key, value);
  }
  for (uint64_t lost = 0; lost < 8; lost++) {
    expected.insert(lost);
    expected.insert(lost < 6 ? 8 : lost);
  }
  EXPECT_EQ(expected, found);
}

TEST_F(TierTest, APrefetchTakesNothingThatIsInUse) {
  make(8);
  const Text whole = text(1, 96);
  store_away(whole);
  Session holder = open(cache_);
  CHECK(pkv_session_reserve(holder, 5 * 16));
  EXPECT_EQ(0u, fetch(whole)) << "six blocks at once cannot be taken";
  config_.buffer_bytes = 1;  // Blocks are read one by one.
  holder.close();
  make(8);
  Session again = open(cache_);
  CHECK(pkv_session_reserve(again, 5 * 16));
  EXPECT_EQ(48u, fetch(whole));
}

TEST_F(TierTest, APrefetchTakesOnlyWhatItsQuotaHasRoomFor) {
  for (const uint32_t window : {0u, 32u}) {
    make(16, window);
    const Text whole = text(1, 96);
    store_away(whole, "one");
    set_quota(64, "one");
    serve(text(2, 14 * 16), "two");
    flush();
    EXPECT_EQ(64u, fetch(whole, "one")) << "the beginning that fits";
    check_found(whole, 64, "one");
    EXPECT_EQ(12u, figures("two").cached_blocks);
  }
}

TEST_F(TierTest, APrefetchInAFullQuotaEvictsNothingOfOthers) {
  make(16);
  const Text whole = text(1, 64), other = text(2, 64);
  store_away(whole, "one");
  store_away(other, "one");
  set_quota(64, "one");
  serve(text(3, 12 * 16), "two");
  serve(other, "one");
  flush();
  EXPECT_EQ(64u, fetch(whole, "one"));
  EXPECT_EQ(4u, figures("one").expelled_blocks) << "the salt's own blocks made room";
  EXPECT_EQ(12u, figures("two").cached_blocks);

  Session running = open_salted("one");
  EXPECT_EQ(64u, match(running, whole));
  EXPECT_EQ(0u, fetch(other, "one")) << "what is in use makes no room";
  EXPECT_EQ(12u, figures("two").cached_blocks);
}

TEST_F(TierTest, ARefusedConfigLeavesTheStoreToTheCaller) {
  config_.fingerprint_size = 1;
  EXPECT_THROW(Prefix::make(4), std::runtime_error);
  EXPECT_EQ(0, memory_.closed);
}

}  // namespace
}  // namespace cache_test::stored_test
