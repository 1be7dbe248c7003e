// Servers that die, stop, run full or send garbage cost misses and little time.
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>

#include "fake.h"
#include "support.h"

namespace redis_test::failures_test {
namespace {

class RedisFailures : public WithServers {};

TEST_F(RedisFailures, AServerIsKilledAndComesBack) {
  Server server;
  Store store(server.address());
  ASSERT_EQ(store.put(1, 1000), 1);
  server.stop();
  EXPECT_LT(store.put(2, 1000), 0);
  EXPECT_TRUE(eventually([&] { return store.put(3, 1000) == -ENOTCONN; }))
      << "calls in the pause after a failure do not connect";
  EXPECT_LT(store.get(1, 1000), 0);
  server.start();
  EXPECT_TRUE(eventually([&] { return store.put(4, 1000) == 1; }));
  EXPECT_TRUE(eventually([&] { return store.get(4, 1000) == 1; }));
  EXPECT_EQ(store.get(1, 1000), 0) << "what was lost is a miss";
}

// A connection that ended while it was idle does not count as a failure. The next call connects
// at once.
TEST_F(RedisFailures, ARestartBetweenTwoCallsIsNotNoticed) {
  Server server;
  Store store(server.address());
  ASSERT_EQ(store.put(1, 1000), 1);
  server.stop();
  server.start();
  EXPECT_EQ(store.put(2, 1000), 1);
  EXPECT_EQ(store.get(2, 1000), 1);
}

// While it lives, this process gets no more descriptors.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int next = dup(STDERR_FILENO);
    close(next);
    const rlimit none{static_cast<rlim_t>(next), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

TEST_F(RedisFailures, AProcessWithoutDescriptorsMissesUntilItHasSome) {
  Server server;
  Store store(server.address(), [](pkv_redis_config& config) { config.connect_later = 1; });
  {
    const NoDescriptors none;
    EXPECT_EQ(store.put(1, 1000), -EMFILE);
    EXPECT_EQ(store.get(1, 1000), -EMFILE);
  }
  EXPECT_TRUE(eventually([&] { return store.put(1, 1000) == 1; }));
  EXPECT_TRUE(eventually([&] { return store.get(1, 1000) == 1; }));
}

TEST_F(RedisFailures, KilledWhileMegabytesAreOnTheirWay) {
  Server server;
  Store store(server.address());
  std::thread killer([&] {
    std::this_thread::sleep_for(100ms);
    server.stop();
  });
  Batch batch;
  for (uint64_t i = 0; i < 32; i++) batch.add(i, 1 << 20);
  int64_t result = 0;
  while (result >= 0) result = store.put(batch);
  killer.join();
  server.start();
  EXPECT_TRUE(eventually([&] { return store.put(batch) == 32; }));
  EXPECT_EQ(store.get(31, 1 << 20), 1);
}

TEST_F(RedisFailures, AStoppedServerCostsOneTimeOut) {
  const Server server;
  Store store(server.address(), hasty_later);
  ASSERT_TRUE(eventually([&] { return store.put(1, 1000) == 1; }));
  server.signal(SIGSTOP);
  auto begin = Clock::now();
  EXPECT_EQ(store.put(2, 1000), -ETIMEDOUT);
  EXPECT_GE(seconds_since(begin), 0.39);
  begin = Clock::now();
  int waited = 0, refused = 0;
  for (; seconds_since(begin) < 3; std::this_thread::sleep_for(1ms)) {
    const int64_t result = store.put(4, 1000);
    EXPECT_TRUE(result == -ETIMEDOUT || result == -ENOTCONN) << result;
    (result == -ETIMEDOUT ? waited : refused)++;
  }
  // Calls wait at 0.1, 0.7, 1.5 and 2.7 s at the earliest, because time-outs are 0.4 s and pauses
  // double. All others fall into a pause.
  EXPECT_LE(waited, 4);
  EXPECT_GT(refused, 0);
  server.signal(SIGCONT);
  EXPECT_TRUE(eventually([&] { return store.put(5, 1000) == 1; }));
  EXPECT_TRUE(eventually([&] { return store.get(5, 1000) == 1; }));
}

TEST_F(RedisFailures, AServerWithoutMemoryStoresLess) {
  const Server server({"--maxmemory", "64mb", "--maxmemory-policy", "noeviction"});
  Store store(server.address(),
              [](pkv_redis_config& config) { config.max_pipeline_bytes = 1 << 20; });
  Batch in;
  for (uint64_t i = 0; i < 100; i++) in.add(i, 1 << 20);
  const int64_t stored = store.put(in);
  EXPECT_GT(stored, 0);
  EXPECT_LT(stored, 100);
  int64_t found = 0;
  for (uint64_t i = 0; i < 100; i++) {
    const int64_t one = store.get(i, 1 << 20);
    EXPECT_EQ(in.size_of(i), one == 1 ? 1 << 20 : 0);
    found += one;
  }
  EXPECT_EQ(found, stored);
  EXPECT_EQ(server.ask({"CONFIG", "SET", "maxmemory", "1mb"}), "OK");
  Batch refused;
  EXPECT_EQ(store.put(refused.add(1000, 10)), -ENOSPC);
  EXPECT_EQ(refused.size_of(0), 0);
  EXPECT_EQ(server.ask({"CONFIG", "SET", "maxmemory", "64mb"}), "OK");
  EXPECT_EQ(server.ask({"CONFIG", "SET", "maxmemory-policy", "allkeys-lru"}), "OK");
  EXPECT_EQ(store.put(in), 100) << "evicts";
}

TEST_F(RedisFailures, AReplicaRefusesToStore) {
  const Server server;
  Store store(server.address());
  ASSERT_EQ(store.put(1, 1000), 1);
  ASSERT_EQ(server.ask({"REPLICAOF", "127.0.0.1", std::to_string(free_port())}), "OK");
  EXPECT_EQ(store.put(2, 1000), -EROFS);
  EXPECT_EQ(store.get(1, 1000), 1);
}

TEST_F(RedisFailures, AServerThatComesLater) {
  Server server;
  server.stop();
  Store store(server.address(), [](pkv_redis_config& config) { config.connect_later = 1; });
  EXPECT_LT(store.get(1, 10), 0);
  server.start();
  EXPECT_TRUE(eventually([&] { return store.put(1, 10) == 1; }));
  EXPECT_TRUE(eventually([&] { return store.get(1, 10) == 1; }));
}

// ---- Garbage -----------------------------------------------------------------------------------

struct Nonsense {
  const char* what;
  Answer answer;
  int64_t result;  // The result of a get.
};

std::string repeated(const std::string& text, size_t n) {
  std::string all;
  for (size_t i = 0; i < n; i++) all += text;
  return all;
}

const Nonsense all_nonsense[] = {
    {"garbage", {"garbage\r\n"}, -EPROTO},
    {"binary garbage", {std::string("\0\xff\r\n\0", 5)}, -EPROTO},
    {"a negative length", {"$-5\r\n"}, -EPROTO},
    {"a length that no number holds", {"$99999999999999999999999\r\n"}, -EPROTO},
    {"a length that is none", {"$12x\r\nabc\r\n"}, -EPROTO},
    {"a huge length, and nothing", {"$4294967296\r\n"}, -EPROTO},
    {"a huge length, and bytes without end",
     {"$536870912\r\n" + std::string(8 << 20, 'x')},
     -EPROTO},
    {"an array that claims all memory", {"*1073741824\r\n"}, -EPROTO},
    {"an array of negative length", {"*-7\r\n"}, -EPROTO},
    {"arrays in arrays", {repeated("*1\r\n", 40)}, -EPROTO},
    {"arrays beside arrays",
     {"*16\r\n" + repeated("*16\r\n" + repeated(":1\r\n", 16), 16)},
     -EPROTO},
    {"an array", {"*2\r\n$1\r\na\r\n:1\r\n"}, 0},
    {"half a reply", {"$1000\r\nabc"}, -ETIMEDOUT},
    {"half a reply, then the end", {"$1000\r\nabc", true}, -ECONNRESET},
    {"half a line", {"-ERR what"}, -ETIMEDOUT},
    {"a line without end", {"+" + std::string(1 << 20, 'x')}, -EPROTO},
    {"nothing", {""}, -ETIMEDOUT},
    {"the end", {"", true}, -ECONNRESET},
    {"two replies", {"$-1\r\n$-1\r\n"}, -EPROTO},
    {"a byte now and then", {"$1000\r\n" + std::string(1000, 'x') + "\r\n", false, 20}, -ETIMEDOUT},
    {"a status", {"+OK\r\n"}, 0},
    {"a number", {":1000\r\n"}, 0},
    {"nil", {"$-1\r\n"}, 0},
    {"an error", {"-ERR no\r\n"}, -EIO},
    {"an empty error", {"-\r\n"}, -EIO},
    {"NOAUTH", {"-NOAUTH Authentication required.\r\n"}, -EACCES},
    {"LOADING", {"-LOADING Redis is loading the dataset in memory\r\n"}, -EAGAIN},
    {"CLUSTERDOWN", {"-CLUSTERDOWN Hash slot not served\r\n"}, -EAGAIN},
    {"MOVED to nowhere", {"-MOVED\r\n"}, -EAGAIN},
    {"MOVED without a port", {"-MOVED 1 127.0.0.1\r\n"}, -EAGAIN},
    {"MOVED to a slot that is none", {"-MOVED 16384 127.0.0.1:1\r\n"}, -EAGAIN},
    {"MOVED to a port that is none", {"-MOVED 1 127.0.0.1:65536\r\n"}, -EAGAIN},
    {"MOVED to a host that is none", {"-MOVED 1 a host:1\r\n"}, -EAGAIN},
    {"MOVED with a colon too early", {"-MOVED 1:2 3\r\n"}, -EAGAIN},
    {"MOVED without a host, to where nobody is", {"-MOVED 1 :1\r\n"}, 0},
    {"MOVED to where nobody is", {"-MOVED 1 127.0.0.1:1\r\n"}, 0},
    {"ASK where nobody is", {"-ASK 1 127.0.0.1:1\r\n"}, 0},
};

// Only commands to a server that goes silent wait for the timeout.
TEST(RedisNonsense, CostsAMissAndNoMore) {
  for (const Nonsense& nonsense : all_nonsense) {
    SCOPED_TRACE(nonsense.what);
    const bool silent = nonsense.result == -ETIMEDOUT;
    const FakeServer server([&](const Command&) { return nonsense.answer; });
    Store store(server.address(), [&](pkv_redis_config& config) {
      if (silent) config.command_timeout_ms = 400;
    });
    EXPECT_EQ(store.get(1, 1000), nonsense.result);
    Batch batch;
    const int64_t put = store.put(batch.add(1, 1000)), removed = store.remove(batch);
    EXPECT_LE(put, nonsense.answer.bytes == "+OK\r\n" ? 1 : 0);
    EXPECT_LE(removed, nonsense.answer.bytes[0] == ':' ? 1 : 0);
    EXPECT_TRUE(silent || (put != -ETIMEDOUT && removed != -ETIMEDOUT));
  }
}

TEST(RedisNonsense, InTheMiddleOfABatch) {
  std::atomic<int> count = 0;
  const FakeServer server([&](const Command&) {
    return ++count % 10 == 0 ? Answer{"nonsense\r\n"} : Answer{"$5\r\nabcde\r\n"};
  });
  Store store(server.address());
  Batch batch;
  for (uint64_t i = 0; i < 20; i++) batch.room(i, 5);
  EXPECT_EQ(store.get(batch), 9) << "what came before counts";
  for (size_t i = 0; i < 20; i++) {
    EXPECT_EQ(batch.value(i), i < 9 ? "abcde" : "") << i;
    EXPECT_TRUE(batch.untouched(i));
  }
}

TEST(RedisNonsense, InTheGreetingAndTheMap) {
  for (const Nonsense& nonsense : all_nonsense) {
    SCOPED_TRACE(nonsense.what);
    for (const char* to : {"PING", "CLUSTER"}) {
      const FakeServer server(
          [&](const Command& command) {
            return command[0] == to ? nonsense.answer : Answer{"+PONG\r\n"};
          },
          false);
      Store store(server.address(), hasty_later);
      EXPECT_LE(store.get(1, 1000), 0);
      EXPECT_LE(store.get(1, 1000), 0);
      EXPECT_LE(server.accepted(), 2) << "each call connects at most once";
    }
  }
}

TEST(RedisNonsense, MapsOfAClusterThatAreNone) {
  for (const std::string map : {
           "*0\r\n",
           "*1\r\n:1\r\n",
           "*1\r\n*0\r\n",
           "*1\r\n*2\r\n:0\r\n:16383\r\n",
           "*1\r\n*3\r\n:0\r\n:16383\r\n*0\r\n",
           "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n",
           "*1\r\n*3\r\n:-1\r\n:5\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n",
           "*1\r\n*3\r\n:9\r\n:5\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n",
           "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:0\r\n",
           "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$-1\r\n:70000\r\n",
           "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$6\r\na host\r\n:1\r\n",
           "*1\r\n*3\r\n$1\r\n0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n",
           "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n:5\r\n$1\r\n1\r\n",
           "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n",
       }) {
    SCOPED_TRACE(map);
    const FakeServer server(
        [&](const Command& command) {
          return command[0] == "CLUSTER" ? Answer{map}
                 : command[0] == "PING"  ? Answer{"+PONG\r\n"}
                                         : Answer{"$-1\r\n"};
        },
        false);
    Store store(server.address(), hasty_later);
    EXPECT_LE(store.get(1, 1000), 0);
    EXPECT_LE(store.get(1, 1000), 0);
  }
}

// A cluster of one server that redirects.
class Redirecting {
 public:
  explicit Redirecting(FakeServer::Script script)
      : server_(
            [this, script = std::move(script)](const Command& command) {
              if (command[0] == "PING" || command[0] == "ASKING") return Answer{"+OK\r\n"};
              const bool asks = command[0] == "CLUSTER";
              maps_ += asks;
              return asks || command[1].ends_with(":rights") ? Answer{server_.map()}
                                                             : script(command);
            },
            false) {}
  std::string address() const { return server_.address(); }
  // How often it was asked for the map of the cluster.
  int maps() const { return maps_; }

 private:
  std::atomic<int> maps_ = 0;
  FakeServer server_;
};

TEST(RedisNonsense, RedirectionsInACircle) {
  std::string self;
  std::mutex mutex;
  std::atomic<int> asked = 0;
  const Redirecting server([&](const Command&) {
    asked++;
    const std::lock_guard lock(mutex);
    return Answer{(asked % 2 == 0 ? "-MOVED 5 " : "-ASK 5 ") + self + "\r\n"};
  });
  {
    const std::lock_guard lock(mutex);
    self = server.address();
  }
  Store store(server.address());
  EXPECT_EQ(store.get(1, 1000), 0);
  EXPECT_EQ(asked, 5);
}

TEST(RedisNonsense, RedirectionsToThousandsOfServers) {
  std::atomic<int> asked = 0;
  const Redirecting server([&](const Command&) {
    const int n = asked++;
    const std::string host = "127.1." + std::to_string(n / 250) + "." + std::to_string(1 + n % 250);
    return Answer{"-MOVED " + std::to_string(n % 16384) + " " + host + ":1\r\n"};
  });
  Store store(server.address());
  Batch batch;
  for (uint64_t i = 0; i < 5000; i++) batch.room(i, 1);
  const int maps = server.maps();
  EXPECT_EQ(store.get(batch), 0);
  EXPECT_EQ(asked, 5000) << "nobody else was asked, and nobody twice";
  EXPECT_LE(server.maps() - maps, 2) << "the map is asked for once for each of two pipelines";
}

// Reads have connections of their own. The put is answered once the touch was.
TEST(RedisNonsense, ATouchDoesNotWaitForAPut) {
  std::atomic<bool> putting = false, touched = false;
  const FakeServer server([&](const Command& command) {
    if (command[0] != "SET") return Answer{":7\r\n"};
    putting = true;
    putting.notify_one();
    touched.wait(false);
    return Answer{"+OK\r\n"};
  });
  Store store(server.address());
  std::thread writer([&] { EXPECT_EQ(store.put(1, 1000), 1); });
  putting.wait(false);
  Batch batch;
  EXPECT_EQ(store.touch(batch.room(1, 0)), 1);
  touched = true;
  touched.notify_one();
  writer.join();
}

}  // namespace
}  // namespace redis_test::failures_test
