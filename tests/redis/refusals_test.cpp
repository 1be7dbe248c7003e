// No error reply is taken for an answer: every error of a server, at every call. Each costs hits or
// writes only, and its reason is told with the server's address.
#include <cerrno>
#include <functional>

#include "fake.h"
#include "support.h"

namespace redis_test::refusals_test {
namespace {

// The result of an operation for some items, and what it says then.
struct Outcome {
  int64_t result;
  std::string sentence;
};

constexpr const char* commands[] = {"SET", "STRLEN", "GETRANGE", "DEL"};

Outcome run(Store& store, const std::string& command, size_t items = 1) {
  Batch batch;
  for (size_t i = 0; i < items; i++)
    command == "SET" ? batch.add(i + 1, 1000) : batch.room(i + 1, 1000);
  const int64_t result = command == "SET"      ? store.put(batch)
                         : command == "STRLEN" ? store.touch(batch)
                         : command == "DEL"    ? store.remove(batch)
                                               : store.get(batch);
  for (size_t i = 0; i < items; i++) EXPECT_TRUE(batch.untouched(i));
  return {result, store.last_error()};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// ---- Every error --------------------------------------------------------------------------------

struct Refusal {
  const char* reply;  // as servers write it
  int error;
  const char* told;
};

// The errors of Redis and Valkey that commands for strings can get.
const Refusal all_refusals[] = {
    {"OOM command not allowed when used memory > 'maxmemory'.", ENOSPC, "OOM, its memory is full"},
    {"READONLY You can't write against a read only replica.", EROFS, "READONLY"},
    {"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to", EIO,
     "MISCONF"},
    {"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
     EBUSY, "BUSY, the server runs a script"},
    {"LOADING Redis is loading the dataset in memory", EAGAIN, "LOADING"},
    {"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", EAGAIN,
     "MASTERDOWN"},
    {"NOREPLICAS Not enough good replicas to write.", EAGAIN, "NOREPLICAS"},
    {"NOAUTH Authentication required.", EACCES, "NOAUTH"},
    {"NOPERM this user has no permissions to run the command", EACCES, "NOPERM"},
    {"ERR unknown command 'X', with args beginning with:", EOPNOTSUPP,
     "does not know this command"},
    {"ERR max number of clients reached", EAGAIN, "maximum number of clients"},
    {"CLUSTERDOWN The cluster is down", EAGAIN, "CLUSTERDOWN"},
    {"TRYAGAIN Multiple keys request during rehashing of slot", EAGAIN, "TRYAGAIN"},
    {"DENIED Redis is running in protected mode", EACCES, "DENIED"},
    {"ERR secret text of a server", EIO, "not shown"},
    {"NOSUCHCODE of a version to come", EIO, "not shown"},
    {"", EIO, "not shown"},
};

TEST(RedisRefusals, OfEveryErrorAtEveryCall) {
  for (const Refusal& refusal : all_refusals) {
    SCOPED_TRACE(refusal.reply);
    const std::string reply = std::string("-") + refusal.reply + "\r\n";
    const FakeServer server([&](const Command&) { return Answer{reply}; });
    Store store(server.address());
    for (const std::string command : commands) {
      const auto [result, sentence] = run(store, command, 3);
      EXPECT_EQ(result, -refusal.error) << command;
      EXPECT_TRUE(contains(sentence, server.address() + ": " + command + " was refused: "))
          << sentence;
      EXPECT_TRUE(contains(sentence, refusal.told)) << sentence;
      EXPECT_FALSE(contains(sentence, "secret")) << sentence;
    }
    EXPECT_EQ(server.accepted(), 2) << "the connections are not at fault";
  }
}

// What was answered counts; a put says why it did not store all.
TEST(RedisRefusals, OfSomeItemsOnly) {
  const FakeServer server([&](const Command& command) {
    if (command[1] == "pagedkv:" + name(2)) return Answer{"-OOM no\r\n"};
    return Answer{command[0] == "SET"        ? "+OK\r\n"
                  : command[0] == "GETRANGE" ? "$-1\r\n"
                                             : ":0\r\n"};
  });
  Store store(server.address());
  for (const std::string command : commands) {
    const auto [result, sentence] = run(store, command, 3);
    EXPECT_EQ(result, command == "SET" ? 2 : 0) << command;
    EXPECT_TRUE(contains(sentence, command + " was refused: OOM")) << sentence;
  }
  Batch batch;
  EXPECT_EQ(store.put(batch.add(5, 10)), 1);
  EXPECT_EQ(store.last_error(), std::string()) << "of an earlier call";
}

// An item whose lifetime is not prolonged is found, but does not count; one that has gone since is
// not found.
TEST(RedisRefusals, OfALongerLifetime) {
  std::atomic<bool> refuses_all{false};
  const FakeServer server([&](const Command& command) {
    if (command[0] != "EXPIRE") return Answer{":1000\r\n"};
    if (refuses_all || command[1] == "pagedkv:" + name(2)) return Answer{"-READONLY no\r\n"};
    return Answer{command[1] == "pagedkv:" + name(3) ? ":0\r\n" : ":1\r\n"};
  });
  Store store(server.address(), [](pkv_redis_config& config) { config.ttl_seconds = 100; });
  Batch batch;
  batch.room(1, 0).room(2, 0).room(3, 0);
  EXPECT_EQ(store.touch(batch), 1);
  EXPECT_TRUE(contains(store.last_error(), "EXPIRE was refused: READONLY")) << store.last_error();
  EXPECT_EQ(batch.size_of(0), 1000u);
  EXPECT_EQ(batch.size_of(1), 1000u);
  EXPECT_EQ(batch.size_of(2), 0u);
  refuses_all = true;
  EXPECT_EQ(store.touch(batch), 0) << "the server was asked: no errno";
  EXPECT_TRUE(contains(store.last_error(), "EXPIRE was refused: READONLY")) << store.last_error();
  EXPECT_EQ(batch.size_of(2), 1000u);
}

// An error about the value of a key is a miss.
TEST(RedisRefusals, OfAKeyOfAnotherType) {
  const FakeServer server([&](const Command&) {
    return Answer{"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"};
  });
  Store store(server.address());
  for (const std::string command : commands) EXPECT_EQ(run(store, command).result, 0) << command;
}

TEST(RedisRefusals, OfRedirectionsOutsideOfACluster) {
  const FakeServer server([&](const Command&) { return Answer{"-MOVED 1 127.0.0.1:1\r\n"}; });
  Store store(server.address());
  const auto [result, sentence] = run(store, "SET");
  EXPECT_EQ(result, 0);
  EXPECT_TRUE(contains(sentence, "SET was refused: MOVED")) << sentence;
}

// ---- Real servers -------------------------------------------------------------------------------

class RedisRefusing : public WithServers {
 protected:
  // Expects an operation to be refused with an errno and a reason, or (errno 0) to be answered.
  static void expect(Store& store, const Server& server, const std::string& command, int error,
                     const std::string& reason = "") {
    const auto [result, sentence] = run(store, command);
    if (error == 0) {
      EXPECT_GE(result, 0) << command << ": " << sentence;
      return;
    }
    EXPECT_EQ(result, -error) << command << ": " << sentence;
    EXPECT_TRUE(contains(sentence, server.address() + ": ")) << sentence;
    EXPECT_TRUE(contains(sentence, reason)) << sentence;
  }
  static std::string sentence_of_open(const std::string& address, bool later = false) {
    pkv_redis_config config = config_for(address);
    config.connect_later = later;
    pkv_store store = made<pkv_store>();
    if (pkv_redis_open(&config, &store) != PKV_OK) return pkv_redis_last_error();
    pkv_store_close(&store);
    return "";
  }
};

TEST_F(RedisRefusing, ASentinel) {
  const Server sentinel({"--sentinel"});
  const std::string sentence = sentence_of_open(sentinel.address());
  EXPECT_TRUE(contains(sentence, sentinel.address() + ": it is a Sentinel")) << sentence;
  EXPECT_EQ(sentence_of_open(sentinel.address(), true), "") << "not asked yet";
  Store later(sentinel.address(), [](pkv_redis_config& config) { config.connect_later = 1; });
  for (const std::string command : commands)
    expect(later, sentinel, command, EOPNOTSUPP, "does not know this command");
}

TEST_F(RedisRefusing, AReplica) {
  const Server server;
  Store store(server.address());
  ASSERT_EQ(server.ask({"REPLICAOF", "127.0.0.1", std::to_string(free_port())}), "OK");
  expect(store, server, "SET", EROFS, "SET was refused: READONLY, the server is a replica");
  expect(store, server, "DEL", EROFS, "READONLY");
  expect(store, server, "STRLEN", 0);
  expect(store, server, "GETRANGE", 0);
  EXPECT_EQ(sentence_of_open(server.address()), "") << "it may become a master";
  ASSERT_EQ(server.ask({"CONFIG", "SET", "replica-serve-stale-data", "no"}), "OK");
  for (const std::string command : {"STRLEN", "GETRANGE"})
    expect(store, server, command, EAGAIN, "MASTERDOWN");
}

TEST_F(RedisRefusing, AServerWithoutMemory) {
  const Server server;
  Store store(server.address());
  ASSERT_EQ(server.ask({"CONFIG", "SET", "maxmemory", "1"}), "OK");
  expect(store, server, "SET", ENOSPC, "SET was refused: OOM, its memory is full");
  for (const std::string command : {"STRLEN", "GETRANGE", "DEL"}) expect(store, server, command, 0);
  EXPECT_EQ(sentence_of_open(server.address()), "") << "others may delete something";
}

TEST_F(RedisRefusing, AServerThatRunsAScript) {
  const Server server({"--lua-time-limit", "1"});
  Store store(server.address());
  for (const std::string command : commands) expect(store, server, command, 0);
  std::thread script([&] { server.ask({"EVAL", "while true do end", "0"}); });
  EXPECT_TRUE(eventually([&] { return server.ask({"PING"}).starts_with("BUSY"); }));
  for (const std::string command : commands)
    expect(store, server, command, EBUSY, "BUSY, the server runs a script");
  server.ask({"SCRIPT", "KILL"});
  script.join();
  for (const std::string command : commands) expect(store, server, command, 0);
}

TEST_F(RedisRefusing, AServerWithTooFewReplicas) {
  const Server server({"--min-replicas-to-write", "1"});
  Store store(server.address());
  expect(store, server, "SET", EAGAIN, "NOREPLICAS");
  expect(store, server, "STRLEN", 0);
  expect(store, server, "GETRANGE", 0);
}

// A connection stays authenticated when the password changes, so it is ended, too.
TEST_F(RedisRefusing, AChangedPassword) {
  const Server server({"--requirepass", "old"});
  Store store("redis://:old@" + server.address());
  for (const std::string command : commands) expect(store, server, command, 0);
  ASSERT_EQ(server.ask_as("old", {"CONFIG", "SET", "requirepass", "new"}), "OK");
  server.ask_as("new", {"CLIENT", "KILL", "TYPE", "normal"});
  for (int again = 0; again < 2; again++)  // the second time in the pause after the first
    for (const std::string command : {"SET", "GETRANGE"}) {
      const auto [result, sentence] = run(store, command);
      EXPECT_TRUE(result == -EACCES || result == -ENOTCONN) << result;
      EXPECT_TRUE(contains(sentence, server.address() + ": AUTH was refused: WRONGPASS"))
          << sentence;
    }
}

TEST_F(RedisRefusing, ARightThatIsTakenAway) {
  const Server server;
  ASSERT_EQ(server.ask({"ACL", "SETUSER", "u", "on", ">p", "~*", "+@all"}), "OK");
  Store store("redis://u:p@" + server.address());
  for (const std::string command : commands) {
    expect(store, server, command, 0);
    ASSERT_EQ(server.ask({"ACL", "SETUSER", "u", "-" + command}), "OK");
    expect(store, server, command, EACCES, command + " was refused: NOPERM");
  }
}

}  // namespace
}  // namespace redis_test::refusals_test
