// A store behind a cache whose blocks only the engine can read: its device may stand still or fail
// at any time.
#include <cstring>
#include <future>
#include <thread>

#include "../store/support.h"
#include "../support/hints.h"
#include "../support/memory_store.h"
#include "elsewhere.h"
#include "small_cache.h"

namespace cache_test::elsewhere_store_test {
namespace {

constexpr uint32_t long_time = 60000;  // milliseconds

class ElsewhereStore : public testing::Test {
 protected:
  MemoryStore memory_;
  pkv_store table_ = memory_.table();
  pkv_store_config config_ = made<pkv_store_config>({.store = &table_});

  Elsewhere::Options with_store(uint64_t blocks = 32) {
    table_ = memory_.table();
    return {.blocks = blocks, .store = &config_};
  }

  static StoreStats stats(const Elsewhere& at) { return store_stats_of(at.cache); }
  static uint64_t flush(const Elsewhere& at, uint32_t time = long_time) {
    uint64_t queued = 99;
    CHECK(pkv_cache_flush_store(at.cache, time, &queued));
    return queued;
  }
  static void clear(const Elsewhere& at) {
    CHECK(pkv_prefix_clear(at.cache, nullptr, PKV_ALL_SALTS));
  }
  static void prefetch(const Elsewhere& at, const Text& text) {
    cache_test::prefetch(at.cache, text);
  }
  static uint64_t wait(const Elsewhere& at, const Text& text, uint32_t time = long_time) {
    uint64_t cached = 99;
    CHECK(pkv_prefetch_wait(at.cache, TextArg(text), time, &cached, nullptr));
    return cached;
  }
  static uint64_t fetch(const Elsewhere& at, const Text& text) {
    prefetch(at, text);
    const uint64_t cached = wait(at, text);
    CHECK(pkv_cache_validate(at.cache));
    return cached;
  }
  // Computes a text, waits until the store has it, and lets it leave the memory.
  static void store_away(Elsewhere& at, const Text& text) {
    at.compute(text).close();
    EXPECT_EQ(0u, flush(at));
    clear(at);
    EXPECT_EQ(0u, pool_stats_of(at.cache).held_blocks);
  }
  static void expect_found(Elsewhere& at, const Text& text, uint64_t tokens) {
    Session session = open(at.cache);
    uint64_t matched = 99;
    CHECK(pkv_session_admit(session, text.size(), text.data(), 0, &matched));
    EXPECT_EQ(tokens, matched);
    at.check(session, Text(text.begin(), text.begin() + static_cast<int64_t>(matched)));
    at.extend(session, text);
    at.check(session, text);
  }
};

void prefetch_and_match(pkv_cache cache, const Text& text, uint64_t& matched, Session& session) {
  uint64_t cached = 0;
  cache_test::prefetch(cache, text);
  CHECK(pkv_prefetch_wait(cache, TextArg(text), long_time, &cached, nullptr));
  session = open(cache);
  CHECK(pkv_session_admit(session, text.size(), text.data(), 0, &matched));
}

TEST_F(ElsewhereStore, WhatLeavesTheEngineComesBack) {
  for (const char* key : {static_cast<const char*>(nullptr), "a key of 24 secret bytes"}) {
    if (key != nullptr && !store::keys_work()) continue;
    config_.secret_key = key;
    config_.secret_key_size = key == nullptr ? 0 : 24;
    Elsewhere at(with_store());
    const Text text = tokens(1, 70);
    store_away(at, text);
    EXPECT_EQ(8u, stats(at).written_items);
    EXPECT_EQ(64u, fetch(at, text));
    expect_found(at, text, 64);
    EXPECT_EQ(0u, flush(at));
    Elsewhere other(with_store());
    EXPECT_EQ(64u, fetch(other, text)) << "as after a restart";
    expect_found(other, text, 64);
    EXPECT_EQ(6u, stats(other).read_items) << "four blocks, and two of the window";
    table_ = memory_.table();
    Elsewhere longer({.store = &config_, .block_bytes = EngineMemory::block_bytes + 1});
    EXPECT_EQ(0u, fetch(longer, text)) << "another model";
  }
}

TEST_F(ElsewhereStore, ASuspendedSessionComesBack) {
  config_.wait_ms = long_time;
  Elsewhere at(with_store());
  const Text text = tokens(1, 70);
  Session session = at.compute(text);
  CHECK(pkv_session_suspend(session));
  EXPECT_EQ(0u, flush(at));
  clear(at);
  uint64_t length = 0, total = 0;
  CHECK(pkv_session_resume(session, &length, &total));
  EXPECT_EQ(64u, length);
  at.extend(session, text);
  at.check(session, text);
}

// While the device stands still in a read, its blocks are nobody else's, and others step.
TEST_F(ElsewhereStore, WhatIsReadIsNotHandedOut) {
  config_.buffer_bytes = 1;  // one position at a time
  Elsewhere at(with_store(8));
  const Text text = tokens(1, 64), other = tokens(500, 40);
  at.engine.hold_reads();
  at.compute(text).close();
  at.engine.await_held_call();
  EXPECT_EQ(1u, stats_of(at.cache).block_io_blocks);
  CHECK(pkv_cache_validate(at.cache));
  // All that waits for the store is given up, but not what is in flight.
  Session greedy = open(at.cache);
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_session_reserve(greedy, 16 * 8));
  EXPECT_NE(nullptr, std::strstr(pkv_last_error(), "1 are being copied by block_io"))
      << pkv_last_error();
  CHECK(pkv_cache_validate(at.cache));
  CHECK(pkv_session_reserve(greedy, 16 * 7));
  at.extend(greedy, other);
  at.check(greedy, other);
  CHECK(pkv_cache_validate(at.cache));
  at.engine.go_on();
  EXPECT_EQ(0u, flush(at));
  CHECK(pkv_session_reserve(greedy, 16 * 8));
  EXPECT_GT(stats(at).unwritten_blocks, 0u);
  EXPECT_EQ(0u, stats_of(at.cache).block_io_blocks);
  CHECK(pkv_cache_validate(at.cache));
}

// While the device stands still in a write, nobody finds what it writes, and others step.
TEST_F(ElsewhereStore, WhatIsWrittenIsNotFound) {
  config_.buffer_bytes = 1;
  Elsewhere at(with_store(8));
  const Text text = tokens(1, 64), other = tokens(500, 20);
  store_away(at, text);
  at.engine.hold_writes();
  prefetch(at, text);
  at.engine.await_held_call();
  EXPECT_EQ(0u, at.cached(text));
  EXPECT_GE(stats_of(at.cache).block_io_blocks, 1u);
  CHECK(pkv_cache_validate(at.cache));
  expect_found(at, other, 0);
  Session session = at.compute(text);
  at.check(session, text);
  CHECK(pkv_cache_validate(at.cache));
  session.close();
  at.engine.go_on();
  wait(at, text);
  EXPECT_EQ(64u, at.cached(text));
  expect_found(at, text, 64);
}

// What is being read from the store is given up when blocks are short.
TEST_F(ElsewhereStore, AReadThatIsGivenUpLeavesNothing) {
  config_.buffer_bytes = 1;
  Elsewhere at(with_store(8));
  const Text text = tokens(1, 100);
  store_away(at, text);
  at.engine.hold_writes();
  prefetch(at, text);
  at.engine.await_held_call();
  Session greedy = open(at.cache);
  REFUSED(PKV_OUT_OF_BLOCKS, pkv_session_reserve(greedy, 16 * 8));
  CHECK(pkv_session_reserve(greedy, 16 * 7));
  at.engine.go_on();
  EXPECT_EQ(0u, wait(at, text)) << "nothing is published";
  CHECK(pkv_session_reserve(greedy, 16 * 8));
  CHECK(pkv_cache_validate(at.cache));
  greedy.close();
  EXPECT_EQ(96u, fetch(at, text));
  expect_found(at, text, 96);
}

// The sentence about missing blocks has room for all figures, and for what to do at its end.
TEST_F(ElsewhereStore, TheLongestSentenceIsWhole) {
  const SmallCache kind{.groups = {{.elsewhere = true}, {.elsewhere = true}},
                        .blocks = 100'000,
                        .shared = true,
                        .storage = PKV_STORAGE_EXTERNAL,
                        .watermark = 1};
  EngineMemory engine(kind.groups.size(), kind.blocks);
  const Cache cache = create(kind, &config_, &engine);
  const auto compute = [&](int32_t first) {
    Session session = open(cache);
    Batch batch = begin(cache, {session}, {32});
    const Text text = tokens(first, 32);
    for (uint32_t group = 0; group < 2; group++) engine.write(batch, group, 1, text);
    commit(batch, text);
  };
  engine.hold_call(2);  // a read of the second group, which then lacks blocks
  compute(1);
  engine.await_held_call();
  const Session session = open(cache);
  const pkv_session self = session;
  auto count = static_cast<uint32_t>(kind.blocks * 16);
  pkv_batch batch = nullptr;
  pkv_status status = PKV_TOO_LARGE;
  for (; status == PKV_TOO_LARGE; count -= 16)
    status = pkv_batch_begin(cache, 1, &self, &count, &batch);
  ASSERT_EQ(PKV_OUT_OF_BLOCKS, status) << "the largest step that could ever work";
  const std::string sentence = pkv_last_error();
  for (const char* part : {"evictable", "pages", "block_io", "watermark", "over all groups"})
    EXPECT_NE(std::string::npos, sentence.find(part)) << sentence;
  EXPECT_TRUE(sentence.ends_with("before this step has begun")) << sentence;
  engine.go_on();
}

TEST_F(ElsewhereStore, AFailingDeviceCostsHitsOnly) {
  Elsewhere at(with_store());
  const Text text = tokens(1, 70);
  uint64_t failed = 0;
  for (const int result : {-EIO, -EINTR, 1, INT32_MIN}) {
    at.engine.result = result;
    at.compute(text).close();
    EXPECT_EQ(0u, flush(at));
    EXPECT_EQ(++failed, stats_of(at.cache).block_io_failures);
    EXPECT_EQ(64u, at.cached(text)) << "it stays in memory";
    expect_found(at, text, 64);
    failed += flush(at) == 0;
    clear(at);
    EXPECT_TRUE(memory_.items().empty());
    CHECK(pkv_cache_validate(at.cache));
  }
  EXPECT_EQ(8u * 4, stats(at).unwritten_blocks);
  at.engine.result = 0;
  store_away(at, text);
  for (uint64_t call = 1; call <= 2; call++) {
    at.engine.reads = at.engine.writes = 0;
    at.engine.fails_at = call;
    at.engine.result = -EIO;
    EXPECT_EQ(0u, fetch(at, text));
    EXPECT_EQ(0u, at.used());
    CHECK(pkv_cache_validate(at.cache));
    EXPECT_EQ(++failed, stats_of(at.cache).block_io_failures);
    EXPECT_EQ(0u, stats(at).corrupt_items);
    at.engine.result = 0;
  }
  EXPECT_EQ(64u, fetch(at, text));
  expect_found(at, text, 64);
}

// The device stands still in each call of its hooks in turn. Meanwhile others match, step, fork,
// trim, are suspended and end, in a cache that must evict for them.
TEST_F(ElsewhereStore, OthersGoOnWhereverTheDeviceStandsStill) {
  config_.buffer_bytes = 1;
  uint64_t stops = 0;
  for (uint64_t k = 1; k < 100; k++) {
    for (const auto& [name, value] : memory_.items()) memory_.lose(name);
    Elsewhere at(with_store(24));
    const Text text = tokens(1, 100);
    at.engine.hold_call(k);
    std::atomic<bool> ended{false};
    std::thread operation([&] {
      at.compute(text).close();
      flush(at);
      clear(at);
      prefetch(at, text);
      wait(at, text);
      ended = true;
    });
    while (!at.engine.is_held() && !ended) std::this_thread::yield();
    const bool stopped = !ended;
    std::future<void> others = std::async(std::launch::async, [&] {
      for (int32_t round = 0; round < 6; round++) {
        const Text own = tokens(10000 + round % 3 * 1000, 70);
        Session session = at.compute(own);
        Session child = fork(session);
        CHECK(pkv_session_trim(child, 60));
        Text other(own.begin(), own.begin() + 60);
        other.push_back(9);
        at.extend(child, other);
        at.check(child, other);
        at.check(session, own);
        CHECK(pkv_session_suspend(session));
        uint64_t length = 0, total = 0;
        CHECK(pkv_session_resume(session, &length, &total));
        at.check(session, Text(own.begin(), own.begin() + static_cast<int64_t>(length)));
      }
      Session greedy = open(at.cache);
      const pkv_status status = pkv_session_reserve(greedy, 24 * 16);
      EXPECT_TRUE(status == PKV_OK || status == PKV_OUT_OF_BLOCKS) << pkv_last_error();
    });
    if (others.wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
      std::fprintf(stderr, "others wait while call %llu stands still\n",
                   static_cast<unsigned long long>(k));
      std::abort();  // the threads cannot be joined
    }
    EXPECT_NO_THROW(others.get()) << "call " << k;
    at.engine.go_on();
    operation.join();
    CHECK(pkv_cache_validate(at.cache));
    stops += stopped;
    if (!stopped) break;
  }
  EXPECT_GE(stops, 12u) << "six blocks of a full group leave and come back";
}

// A group of states beside one of keys and values.
TEST_F(ElsewhereStore, StatesComeBackFromStoresAndFiles) {
  const auto make = [&](EngineMemory& engine) {
    const pkv_layer_group groups[] = {
        made<pkv_layer_group>({.layers = 1,
                               .kind = PKV_LAYERS_OPAQUE_KV,
                               .layer_bytes = EngineMemory::block_bytes,
                               .blocks = 32}),
        made<pkv_layer_group>({.layers = 2,
                               .kind = PKV_LAYERS_OPAQUE_STATES,
                               .layer_bytes = EngineMemory::block_bytes / 2,
                               .checkpoint_interval = 32,
                               .blocks = 32})};
    auto prefix = made<pkv_prefix_config>({.eviction = PKV_EVICTION_LRU});
    table_ = memory_.table();
    return create(made<pkv_cache_config>({.group_count = 2,
                                          .groups = groups,
                                          .storage = PKV_STORAGE_EXTERNAL,
                                          .prefix = &prefix,
                                          .store = &config_,
                                          .block_io = engine.hooks()}));
  };
  const Text text = tokens(1, 70);
  const auto mark = [&](uint64_t length) {
    return length == 0 ? 0 : 1000 + static_cast<uint64_t>(text[length - 1]);
  };
  const auto extend = [&](const Cache& cache, EngineMemory& engine, pkv_session session,
                          uint64_t end) {
    const uint64_t from = length_of(session);
    const Text rest(text.begin() + static_cast<int64_t>(from),
                    text.begin() + static_cast<int64_t>(end));
    Batch batch = begin(cache, {session}, {static_cast<uint32_t>(rest.size())});
    engine.write(batch, 0, 1, rest);
    engine.write_states(batch, 1, 1, [&](size_t, uint64_t n) { return mark(from + n); });
    commit(batch, rest);
    CHECK(pkv_cache_validate(cache));
  };
  EngineMemory engine(2, 32), restarted(2, 32), loading(2, 32);
  Cache cache = make(engine);
  Session session = open(cache);
  for (const uint64_t end : {40, 64, 70}) extend(cache, engine, session, end);
  uint64_t bytes = 0;
  std::vector<unsigned char> file(1 << 16);
  pkv_stream stream = buffer_stream(file.data(), file.size());
  const pkv_file_item item{session, nullptr, 1};
  CHECK(pkv_file_save(cache, 1, &item, nullptr, &stream, &bytes));
  session.close();
  cache.close();  // writes what is queued

  Cache again = make(restarted);
  uint64_t matched = 0;
  prefetch_and_match(again, text, matched, session);
  EXPECT_EQ(64u, matched);
  extend(again, restarted, session, 70);
  session.close();

  Cache other = make(loading);
  stream.size = bytes;
  pkv_session loaded;
  size_t count = 0;
  CHECK(pkv_file_load(other, nullptr, &stream, 1, &loaded, nullptr, &count));
  Session back(loaded);
  EXPECT_EQ(mark(32), loading.state(1, block_table(back, 1)[1])) << "the checkpoint";
  EXPECT_EQ(mark(70), loading.state(1, block_table(back, 1)[4]));
  CHECK(pkv_session_trim(back, 32));
  extend(other, loading, back, 70);
}

}  // namespace
}  // namespace cache_test::elsewhere_store_test
