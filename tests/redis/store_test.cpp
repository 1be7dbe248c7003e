// A store in one server.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "support.h"

namespace redis_test::store_test {
namespace {

class RedisStore : public WithServers {};

std::string key_of(uint64_t seed) { return "pagedkv:" + name(seed); }

TEST_F(RedisStore, RoundTripsOfOddSizes) {
  const Server server;
  Store store(server.address());
  const std::vector<size_t> sizes = {1,     2,     13,    4095,      4096,   4097,
                                     65535, 65536, 65537, 1'000'003, 4 << 20};
  Batch in, out;
  for (size_t i = 0; i < sizes.size(); i++) in.add(i, sizes[i]), out.room(i, sizes[i]);
  ASSERT_EQ(store.put(in), static_cast<int64_t>(sizes.size()));
  ASSERT_EQ(store.get(out), static_cast<int64_t>(sizes.size()));
  for (size_t i = 0; i < sizes.size(); i++) {
    EXPECT_EQ(out.size_of(i), sizes[i]);
    EXPECT_TRUE(out.value(i) == bytes(sizes[i], i)) << sizes[i];
    EXPECT_TRUE(out.untouched(i));
  }
}

TEST_F(RedisStore, ByAnAddressOfIPv6) {
  if (!have_ipv6()) GTEST_SKIP() << "this machine has no ::1";
  const Server server({"--bind", "127.0.0.1", "::1"});
  Store store("redis://[::1]:" + std::to_string(server.port()));
  EXPECT_EQ(store.put(1, 1000), 1);
  EXPECT_EQ(store.get(1, 1000), 1);
  EXPECT_NE(server.ask({"CLIENT", "LIST"}).find("[::1]:"), std::string::npos);
}

// Redis answers alike for a key without an item and for an empty value, so an item of no bytes is
// not found.
TEST_F(RedisStore, NoItemsAndItemsOfNoBytes) {
  const Server server;
  Store store(server.address());
  Batch none;
  EXPECT_EQ(store.put(none), 0);
  EXPECT_EQ(store.get(none), 0);
  EXPECT_EQ(store.touch(none), 0);
  EXPECT_EQ(store.remove(none), 0);
  EXPECT_EQ(store.put(1, 0), 1);
  EXPECT_EQ(store.get(1, 0), 0);
}

TEST_F(RedisStore, ThousandsOfKeys) {
  const Server server;
  Store store(server.address());
  constexpr size_t n = 10'000;  // These are more than are sent at once.
  Batch in, touched, even, out;
  for (size_t i = 0; i < n; i++) in.add(i, 1 + i % 200);
  for (size_t i = 0; i < n + 5; i++) touched.room(i, 0), out.room(i, 200);
  for (size_t i = 0; i < n; i += 2) even.room(i, 0);
  ASSERT_EQ(store.put(in), static_cast<int64_t>(n));
  EXPECT_EQ(server.ask({"DBSIZE"}), std::to_string(n));
  ASSERT_EQ(store.touch(touched), static_cast<int64_t>(n));
  for (size_t i = 0; i < n + 5; i++) ASSERT_EQ(touched.size_of(i), i < n ? 1 + i % 200 : 0);
  ASSERT_EQ(store.remove(even), static_cast<int64_t>(n / 2));
  ASSERT_EQ(store.remove(even), 0);
  ASSERT_EQ(store.get(out), static_cast<int64_t>(n / 2));
  for (size_t i = 0; i < n; i++)
    ASSERT_TRUE(out.value(i) == (i % 2 == 1 ? bytes(1 + i % 200, i) : "")) << i;
}

TEST_F(RedisStore, KeysOfAllBytes) {
  const Server server;
  Store store(server.address());
  Batch in, out;
  for (int byte = 0; byte < 256; byte++) {
    in.add(std::string(32, static_cast<char>(byte)), std::to_string(byte));
    out.add(std::string(32, static_cast<char>(byte)), "   ");
  }
  ASSERT_EQ(store.put(in), 256);
  ASSERT_EQ(store.get(out), 256);
  for (size_t i = 0; i < 256; i++) EXPECT_EQ(out.value(i), std::to_string(i));
}

TEST_F(RedisStore, RoomAndValueDiffer) {
  const Server server;
  Store store(server.address());
  ASSERT_EQ(store.put(1, 1000), 1);
  Batch out;
  out.room(1, 10).room(1, 999).room(1, 1000).room(1, 1001).room(1, 0);
  ASSERT_EQ(store.get(out), 5);
  for (size_t i = 0; i < out.size(); i++) {
    EXPECT_EQ(out.size_of(i), 1000u) << i;
    EXPECT_TRUE(out.untouched(i)) << i;
    EXPECT_EQ(out.value(i), bytes(1000, 1).substr(0, out.value(i).size())) << i;
  }
}

// How many bytes the server has sent, to this process and others.
uint64_t sent_bytes(const Server& server) {
  const std::string name = "total_net_output_bytes:", info = server.ask({"INFO", "stats"});
  return std::stoull(info.substr(info.find(name) + name.size()));
}

// A server holds a value that is far larger than the room. It must not be transferred.
TEST_F(RedisStore, ValuesThatSomebodyElseWrote) {
  const Server server;
  Store store(server.address());
  ASSERT_EQ(store.put(1, 1000), 1);
  ASSERT_EQ(server.ask({"SETRANGE", key_of(1), "400000000", "x"}), "400000001");
  Batch large;
  const uint64_t sent = sent_bytes(server);
  ASSERT_EQ(store.get(large.room(1, 1000)), 1);
  EXPECT_EQ(large.size_of(0), 400'000'001u);
  EXPECT_TRUE(large.untouched(0));
  EXPECT_LT(sent_bytes(server) - sent, 100'000u);

  ASSERT_EQ(server.ask({"SET", key_of(1), "short"}), "OK");
  Batch shorter;
  ASSERT_EQ(store.get(shorter.room(1, 1000)), 1);
  EXPECT_EQ(shorter.value(0), "short");

  ASSERT_EQ(server.ask({"DEL", key_of(1)}), "1");
  ASSERT_EQ(server.ask({"RPUSH", key_of(1), "a", "b"}), "2");
  Batch touched;
  EXPECT_EQ(store.touch(touched.room(1, 0)), 0);
  EXPECT_EQ(store.get(1, 1000), 0);
  EXPECT_EQ(store.put(1, 1000), 1) << "a put replaces what is of a wrong type";
  EXPECT_EQ(store.get(1, 1000), 1);
}

TEST_F(RedisStore, PipelinesOfAnySize) {
  const Server server;
  for (const uint64_t max_bytes : {64u << 10, 1u << 20, 1u << 30}) {
    Store store(server.address(),
                [&](pkv_redis_config& config) { config.max_pipeline_bytes = max_bytes; });
    Batch in, out;
    for (size_t i = 0; i < 40; i++) in.add(i, i % 5 * 100'000 + 1), out.room(i, 500'000);
    ASSERT_EQ(store.put(in), 40);
    ASSERT_EQ(store.get(out), 40);
    for (size_t i = 0; i < 40; i++) ASSERT_TRUE(out.value(i) == bytes(i % 5 * 100'000 + 1, i));
  }
}

TEST_F(RedisStore, TimeToLive) {
  const Server server;
  {
    Store forever(server.address());
    ASSERT_EQ(forever.put(1, 10), 1);
    Batch touched;
    ASSERT_EQ(forever.touch(touched.room(1, 0)), 1);
    EXPECT_EQ(server.ask({"TTL", key_of(1)}), "-1");
  }
  Store store(server.address(), [](pkv_redis_config& config) { config.ttl_seconds = 1000; });
  ASSERT_EQ(store.put(1, 10'000), 1);
  EXPECT_GT(std::stoi(server.ask({"TTL", key_of(1)})), 900);
  ASSERT_EQ(server.ask({"EXPIRE", key_of(1), "100"}), "1");
  ASSERT_EQ(store.put(1, 10'000), 1);
  EXPECT_GT(std::stoi(server.ask({"TTL", key_of(1)})), 900) << "it begins anew with a put";
  ASSERT_EQ(server.ask({"EXPIRE", key_of(1), "100"}), "1");
  Batch touched;
  ASSERT_EQ(store.touch(touched.room(2, 0).room(1, 0).room(3, 0)), 1);
  EXPECT_EQ(touched.size_of(1), 10'000u);
  EXPECT_GT(std::stoi(server.ask({"TTL", key_of(1)})), 900) << "and with a touch";
  EXPECT_EQ(server.ask({"DBSIZE"}), "1");
  EXPECT_EQ(store.get(1, 10'000), 1);
}

TEST_F(RedisStore, PrefixesKeepStoresApart) {
  const Server server;
  Store a(server.address(), [](pkv_redis_config& config) { config.key_prefix = "a"; });
  Store none(server.address(), [](pkv_redis_config& config) { config.key_prefix = ""; });
  Store otherwise(server.address());
  ASSERT_EQ(a.put(1, 10), 1);
  EXPECT_EQ(none.get(1, 10), 0);
  EXPECT_EQ(otherwise.get(1, 10), 0);
  EXPECT_EQ(server.ask({"EXISTS", std::string("a").append(name(1))}), "1");
  ASSERT_EQ(none.put(1, 10), 1);
  EXPECT_EQ(server.ask({"EXISTS", name(1)}), "1");
}

TEST_F(RedisStore, TwoProcessesShareAServer) {
  const Server server;
  const pid_t child = fork();
  if (child == 0) {
    Store store(server.address());
    _exit(store.put(1, 100'000) == 1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  Store store(server.address());
  EXPECT_EQ(store.get(1, 100'000), 1);
}

TEST_F(RedisStore, AfterAForkOnlyTheParentUsesIt) {
  const Server server;
  auto store = std::make_unique<Store>(server.address());
  ASSERT_EQ(store->put(1, 1000), 1);
  const pid_t child = fork();
  if (child == 0) {
    const bool right = store->get(1, 1000) == -ECHILD && store->put(1, 1000) == -ECHILD;
    store.reset();
    _exit(right && !testing::Test::HasFailure() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(store->get(1, 1000), 1) << "the child's close left the connection alone";
}

// ThreadSanitizer watches this test.
TEST_F(RedisStore, ThreadsReadAndWriteAtOnce) {
  const Server server;
  Store store(server.address());
  std::atomic<bool> stop = false;
  std::atomic<int64_t> found = 0;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 2; t++)
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 60; i++) EXPECT_EQ(store.put(t * 1000 + i, 50'000), 1);
      stop = true;
    });
  for (uint64_t t = 0; t < 2; t++)
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; !stop; i++) {
        found += store.get(t * 1000 + i % 60, 50'000);
        Batch batch;
        EXPECT_GE(store.touch(batch.room(i % 60, 0)), 0);
        if (i % 16 == 0) {
          EXPECT_GE(store.remove(batch), 0);
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(found, 0);
}

}  // namespace
}  // namespace redis_test::store_test
