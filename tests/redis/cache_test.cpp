// Caches keep blocks in real servers. A process finds what another one computed, and any failure of
// a server costs only hits.
#include <pagedkv/redis.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "../cache/elsewhere.h"
#include "../cache/prefix_fixture.h"
#include "../support/lines.h"
#include "servers.h"

namespace cache_test::stored_test {
namespace {

constexpr uint32_t long_time = std::chrono::milliseconds(redis_test::hang_limit).count();

class RedisTier : public Prefix {
 protected:
  uint32_t ttl_seconds_ = 0;

  void SetUp() override {
    if (!redis_test::have_server())
      GTEST_SKIP() << "neither redis-server nor valkey-server is installed";
  }

  void make_with(const std::string& servers, uint64_t blocks, uint32_t wait_ms = 0,
                 uint32_t timeout_ms = long_time) {
    cache_.close();
    auto config = made<pkv_redis_config>({.ttl_seconds = ttl_seconds_,
                                          .servers = servers.c_str(),
                                          .connect_timeout_ms = timeout_ms,
                                          .command_timeout_ms = timeout_ms,
                                          .connect_later = timeout_ms < long_time});
    pkv_store table = made<pkv_store>();
    ASSERT_EQ(PKV_OK, pkv_redis_open(&config, &table)) << pkv_redis_last_error();
    auto store_config = made<pkv_store_config>({.wait_ms = wait_ms, .store = &table});
    store_ = &store_config;
    make(blocks);
    store_ = nullptr;
  }
  uint64_t fetch(const Text& tokens) {
    prefetch(cache_, tokens);
    uint64_t cached = 0;
    CHECK(pkv_prefetch_wait(cache_, TextArg(tokens), long_time, &cached, nullptr));
    return cached;
  }
  uint64_t flush() { return flush_store(cache_); }
  cache_test::StoreStats stats() { return store_stats_of(cache_); }
};

TEST_F(RedisTier, TwoProcessesShareAPrefix) {
  redis_test::Server server;
  const Text whole = text(1, 100);
  const pid_t child = ::fork();
  if (child == 0) {
    make_with(server.address(), 16);
    serve(whole);
    cache_.close();  // This writes what is queued.
    _exit(HasFailure() ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  ASSERT_EQ(0, status);
  make_with(server.address(), 16);
  EXPECT_EQ(96u, fetch(whole));
  EXPECT_EQ(96u, serve(whole));
  EXPECT_EQ(12u, stats().read_items);
}

TEST_F(RedisTier, AClusterKeepsBlocks) {
  redis_test::Cluster cluster;
  const Text whole = text(1, 320);
  make_with(cluster[0].address(), 32);
  serve(whole);
  EXPECT_EQ(0u, flush());
  EXPECT_EQ(40u, stats().written_items);
  CHECK(pkv_prefix_clear(cache_, nullptr, PKV_ALL_SALTS));
  EXPECT_EQ(320u, fetch(whole));
  EXPECT_EQ(320u, serve(whole));
}

TEST_F(RedisTier, AServerOfAClusterThatIsDownCostsItsBlocksOnly) {
  redis_test::Cluster cluster;
  const Text whole = text(1, 320);
  make_with(cluster[0].address(), 32);
  cluster[1].stop();
  serve(whole);
  EXPECT_EQ(0u, flush());
  const uint64_t written = stats().written_items;
  EXPECT_GT(written, 0u);
  EXPECT_LT(written, 40u);
  EXPECT_LT(stats().unwritten_blocks, 20u) << "some have no item on that server";
  EXPECT_EQ(0u, stats().down);
  cluster[1].start();
  cluster.wait_until_ok();
  for (int i = 0; i < 600 && stats().written_items < 40; i++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    serve(whole);
    EXPECT_EQ(0u, flush());
  }
  EXPECT_EQ(40u, stats().written_items) << "none was put again";
  CHECK(pkv_prefix_clear(cache_, nullptr, PKV_ALL_SALTS));
  EXPECT_EQ(320u, fetch(whole));
}

TEST_F(RedisTier, KeepsBlocksThatOnlyAnEngineCanRead) {
  redis_test::Server server;
  const std::string address = server.address();
  const auto redis = made<pkv_redis_config>({.servers = address.c_str()});
  const auto whole = cache_test::tokens(1, 70);
  for (const uint64_t items : {0, 6}) {  // the second time as after a restart
    pkv_store table = made<pkv_store>();
    ASSERT_EQ(PKV_OK, pkv_redis_open(&redis, &table)) << pkv_redis_last_error();
    const auto store_config = made<pkv_store_config>({.wait_ms = long_time, .store = &table});
    Elsewhere at({.store = &store_config});
    Session session = at.compute(whole);
    EXPECT_EQ(items, store_stats_of(at.cache).read_items) << "four blocks, and two of the window";
    at.check(session, whole);
  }
}

// A replica refuses to prolong the lifetime of what it has, which can still be read.
TEST_F(RedisTier, RefusedLifetimesAreNotSilent) {
  redis_test::Server server;
  Lines lines;
  logger_ = lines.logger();
  ttl_seconds_ = 1000;
  make_with(server.address(), 32);
  serve(text(1, 64));
  flush();
  ASSERT_EQ(0u, stats().failures);
  ASSERT_EQ("OK", server.ask({"REPLICAOF", "127.0.0.1", "1"}));
  make_with(server.address(), 32);
  EXPECT_EQ(64u, fetch(text(1, 64)));
  EXPECT_EQ(1u, stats().failures);
  EXPECT_EQ(1u, lines.count(PKV_LOG_WARNING, "the store failed"));
  EXPECT_EQ(1u, lines.count(PKV_LOG_WARNING, "the store failed to read: " + server.address() +
                                                 ": EXPIRE was refused: READONLY"));
  EXPECT_EQ(0u, stats().down);
  EXPECT_EQ(8u, stats().read_items);
}

// What a server refuses is counted, and logged once a minute with the server and its reason.
TEST_F(RedisTier, RefusedWritesAreNotSilent) {
  redis_test::Server server;
  Lines lines;
  logger_ = lines.logger();
  make_with(server.address(), 32);
  ASSERT_EQ("OK", server.ask({"CONFIG", "SET", "maxmemory", "1"}));
  for (int32_t name = 1; name <= 3; name++) {
    serve(text(name, 64));
    flush();
  }
  EXPECT_GE(stats().failures, 1u);
  EXPECT_EQ(0u, stats().written_items);
  EXPECT_EQ(1u, lines.count(PKV_LOG_WARNING, "the store failed"));
  EXPECT_EQ(1u, lines.count(PKV_LOG_WARNING, "the store failed to write: " + server.address() +
                                                 ": SET was refused: OOM"));
  EXPECT_EQ(0u, lines.count(PKV_LOG_INFO, "works again")) << "reads worked all the time";
  cache_.close();  // before the lines
  logger_ = nullptr;
}

// Texts are served all the while, and checked row by row.
TEST_F(RedisTier, WhateverHappensToAServerCostsHitsOnly) {
  redis_test::Server server;
  make_with(server.address(), 10, 2000, 300);
  uint64_t matched = 0;
  // On a slow machine more of the short timeouts expire, and it takes more rounds until every case
  // occurred.
  const auto all_happened = [&] {
    const pkv_store_stats now = stats();
    return now.failures > 0 && now.read_items > 0 && now.corrupt_items > 0 && matched > 0;
  };
  for (int32_t round = 0; round < 36 || (round < 360 && !all_happened()); round++) {
    switch (round % 12) {
      case 3:
        server.signal(SIGSTOP);
        break;
      case 5:
        server.signal(SIGCONT);
        break;
      case 7:
        server.stop();
        break;
      case 9:
        server.start();
        break;
      case 11:
        for (const char* change : {"for _,k in ipairs(redis.call('KEYS','*')) do "
                                   "redis.call('SETRANGE',k,100,'wrong') end return 1"})
          server.ask({"EVAL", change, "0"});
        break;
      default:
        break;
    }
    matched += serve(text(
        // These are three texts of which two fit. What is not in memory is in the store, or is
        // computed.
        round % 3, 64));
    serve(text(3 + round % 2, 64));
    flush();
    if (HasFailure()) return;
    // After a failure the store is not called for a while.
    const bool back = round % 12 == 5 || round % 12 == 9;
    for (int i = 0; back && stats().down != 0 && i < 200; i++)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  server.signal(SIGCONT);
  EXPECT_TRUE(all_happened());
}

}  // namespace
}  // namespace cache_test::stored_test
