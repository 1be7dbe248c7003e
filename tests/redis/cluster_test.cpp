// A store in a cluster of three servers. Every key goes to its server and is found after it moved
// to another one.
#include <cerrno>

#include "fake.h"
#include "redis/hash_slots.h"
#include "support.h"

namespace redis_test::cluster_test {
namespace {

// Compares with the numbers of Redis' own documentation and its hash tags.
TEST(RedisSlots, OfKeys) {
  using pkv::redis::slot_of;
  EXPECT_EQ(slot_of("123456789"), 0x31C3);
  EXPECT_EQ(slot_of(""), 0);
  EXPECT_EQ(slot_of("foo"), 12182);
  EXPECT_EQ(slot_of("{user1000}.following"), slot_of("user1000"));
  EXPECT_EQ(slot_of("a{b}{c}"), slot_of("b"));
  EXPECT_EQ(slot_of("foo{{bar}}zap"), slot_of("{bar"));
  EXPECT_NE(slot_of("foo{}{bar}"), slot_of("bar"));
  EXPECT_NE(slot_of("{bar"), slot_of("bar"));
}

class RedisCluster : public WithServers {
 protected:
  static void SetUpTestSuite() {
    if (have_server()) cluster_ = new Cluster;
  }
  static void TearDownTestSuite() {
    delete cluster_;
    cluster_ = nullptr;
  }
  void SetUp() override {
    WithServers::SetUp();
    if (IsSkipped()) return;
    for (size_t i = 0; i < cluster().size(); i++) cluster()[i].ask({"FLUSHALL"});
  }
  static Cluster& cluster() { return *cluster_; }
  static void move_a_slot();

 private:
  inline static Cluster* cluster_ = nullptr;
};

TEST_F(RedisCluster, SlotsAreTheServers) {
  for (uint64_t seed = 0; seed < 50; seed++) {
    for (const char* prefix : {"", "{x}", "{", "}{", "a{}"}) {
      const std::string key = prefix + name(seed);
      EXPECT_EQ(std::to_string(pkv::redis::slot_of(key)),
                cluster()[0].ask({"CLUSTER", "KEYSLOT", key}));
    }
  }
}

TEST_F(RedisCluster, KeysAreSpread) {
  Store store(cluster()[1].address());
  // The question for the user's rights goes to any server.
  for (size_t i = 0; i < cluster().size(); i++) cluster()[i].ask({"CONFIG", "RESETSTAT"});
  Batch in, out;
  for (uint64_t i = 0; i < 3000; i++) in.add(i, 1000 + i % 7), out.room(i, 2000);
  ASSERT_EQ(store.put(in), 3000);
  int total = 0;
  for (size_t i = 0; i < cluster().size(); i++) {
    const int here = std::stoi(cluster()[i].ask({"DBSIZE"}));
    // 1000 keys are expected, with a standard deviation of 26.
    EXPECT_NEAR(here, 1000, 200);
    total += here;
  }
  EXPECT_EQ(total, 3000);
  ASSERT_EQ(store.get(out), 3000);
  for (uint64_t i = 0; i < 3000; i++) ASSERT_TRUE(out.value(i) == bytes(1000 + i % 7, i));
  EXPECT_EQ(store.remove(in), 3000);
  // No request was redirected, so the map was right.
  for (size_t i = 0; i < cluster().size(); i++)
    EXPECT_EQ(cluster()[i].ask({"INFO", "errorstats"}).find("errorstat_MOVED"), std::string::npos);
}

// Moves a slot with its keys from one server to another and back, while stores use it.
void RedisCluster::move_a_slot() {
  const std::string prefix = "{x}:";
  const size_t slot = pkv::redis::slot_of(prefix), from = cluster().owner(slot),
               to = (from + 1) % cluster().size();
  const std::string number = std::to_string(slot), port = std::to_string(cluster()[to].port());
  const auto with_prefix = [&](pkv_redis_config& config) { config.key_prefix = prefix.c_str(); };
  Store store(cluster()[0].address(), with_prefix);
  const auto all_there = [](Store& in, uint64_t n) {
    Batch out;
    for (uint64_t i = 0; i < n; i++) out.room(i, 10'000);
    EXPECT_EQ(in.get(out), static_cast<int64_t>(n));
    for (uint64_t i = 0; i < n; i++) EXPECT_TRUE(out.value(i) == bytes(10'000, i)) << i;
  };
  const auto set_slot = [&](size_t at, const std::string& how, size_t other) {
    ASSERT_EQ(cluster()[at].ask({"CLUSTER", "SETSLOT", number, how, cluster().id(other)}), "OK");
  };
  const auto begin_move = [&](size_t giver, size_t taker) {
    cluster().wait_until_ok();
    set_slot(taker, "IMPORTING", giver);
    set_slot(giver, "MIGRATING", taker);
  };
  const auto end_move = [&](size_t taker) {
    set_slot(taker, "NODE", taker);
    set_slot(from + to - taker, "NODE", taker);
  };
  for (uint64_t i = 0; i < 20; i++) ASSERT_EQ(store.put(i, 10'000), 1);

  begin_move(from, to);
  all_there(store, 20);
  for (uint64_t i = 0; i < 10; i++)
    ASSERT_EQ(cluster()[from].ask({"MIGRATE", "127.0.0.1", port, prefix + name(i), "0", "10000"}),
              "OK");
  all_there(store, 20);
  for (uint64_t i = 20; i < 25; i++)
    EXPECT_EQ(store.put(i, 10'000), 1) << "new keys go to the new server";
  EXPECT_EQ(cluster()[to].ask({"DBSIZE"}), "15");
  for (uint64_t i = 10; i < 20; i++)
    ASSERT_EQ(cluster()[from].ask({"MIGRATE", "127.0.0.1", port, prefix + name(i), "0", "10000"}),
              "OK");
  end_move(to);
  all_there(store, 25);
  all_there(store, 25);
  Store fresh(cluster()[from].address(), with_prefix);
  all_there(fresh, 25);

  // The slot goes back, for the other tests.
  for (const size_t at : {from, to}) cluster()[at].ask({"FLUSHALL"});
  begin_move(to, from);
  end_move(from);
  cluster().wait_until_ok();
}

TEST_F(RedisCluster, ASlotMoves) { move_a_slot(); }

// The servers give a port alone, or "?" for their name, in the map and in redirections. The name is
// then the one by which the server was asked.
TEST_F(RedisCluster, ASlotMovesBetweenServersThatDoNotKnowTheirNames) {
  const auto tell_names = [](const std::string& how) {
    for (size_t i = 0; i < cluster().size(); i++) {
      const std::string answer =
          cluster()[i].ask({"CONFIG", "SET", "cluster-preferred-endpoint-type", how});
      if (answer != "OK") return answer;
    }
    return std::string();
  };
  for (const char* how : {"unknown-endpoint", "hostname"}) {
    SCOPED_TRACE(how);
    if (const std::string answer = tell_names(how); !answer.empty())
      GTEST_SKIP() << "this server always tells names: " << answer;
    EXPECT_EQ(cluster()[0].ask({"CLUSTER", "SLOTS"}).find("16383 127.0.0.1"), std::string::npos);
    move_a_slot();
  }
  EXPECT_EQ(tell_names("ip"), "");
}

// It was reset, or has lost its disk, so the views of the others are right.
TEST_F(RedisCluster, AServerThatKnowsNoSlotsIsPassedOver) {
  Server alone({"--cluster-enabled", "yes"});
  Store store(alone.address() + "," + cluster()[0].address());
  Batch in, out;
  for (uint64_t i = 0; i < 300; i++) in.add(i, 1000), out.room(i, 1000);
  EXPECT_EQ(store.put(in), 300);
  EXPECT_EQ(store.get(out), 300);
  const std::string address = alone.address();
  const pkv_redis_config config = config_for(address);
  pkv_store unused = made<pkv_store>();
  EXPECT_EQ(pkv_redis_open(&config, &unused), PKV_IO);
  EXPECT_NE(std::string(pkv_redis_last_error()).find("knows no server of any slot"),
            std::string::npos)
      << pkv_redis_last_error();
}

// A server that is cut off from its cluster still claims its slots, and refuses their keys.
TEST_F(RedisCluster, AServerThatIsCutOffIsAskedNoMore) {
  std::string map;
  FakeServer stale(
      [&](const Command& command) -> Answer {
        if (command[0] == "PING") return {"+PONG\r\n"};
        if (command[0] == "CLUSTER") return {map};
        return {"-CLUSTERDOWN The cluster is down\r\n"};
      },
      false);
  map = stale.map();
  Store store(stale.address() + "," + cluster()[0].address());
  EXPECT_EQ(store.put(1, 1000), -EAGAIN) << "refused by the first";
  EXPECT_EQ(store.put(1, 1000), 1);
  EXPECT_EQ(store.get(1, 1000), -EAGAIN) << "reads have a client of their own";
  EXPECT_EQ(store.get(1, 1000), 1);
}

// A server that is cut off from its cluster names an owner of the slots that is down, or that is a
// replica now and redirects to another server.
TEST_F(RedisCluster, AServerThatNamesOldMastersIsAskedNoMore) {
  std::string moved;
  const FakeServer old(
      [&](const Command& command) -> Answer {
        return {command[0] == "PING" ? "+PONG\r\n" : moved};
      },
      false);
  const std::string prefix = "{x}:", nobody = "127.0.0.1:" + std::to_string(free_port());
  const size_t slot = pkv::redis::slot_of(prefix), owner = cluster().owner(slot),
               other = (owner + 1) % cluster().size();
  moved = "-MOVED " + std::to_string(slot) + " " + cluster()[owner].address() + "\r\n";
  for (const std::string& master : {old.address(), nobody}) {
    const FakeServer stale(
        [&](const Command& command) -> Answer {
          if (command[0] == "PING") return {"+PONG\r\n"};
          if (command[0] != "CLUSTER") return {"$-1\r\n"};
          return {"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:" +
                  master.substr(master.find(':') + 1) + "\r\n"};
        },
        false);
    // The new master is not among the configured servers, and the stale one does not name it.
    Store store(stale.address() + "," + cluster()[other].address(),
                [&](pkv_redis_config& config) { config.key_prefix = prefix.c_str(); });
    const int64_t first = store.put(1, 1000);
    EXPECT_EQ(first, master == nobody ? -ECONNREFUSED : 1) << "asks the other one at once";
    EXPECT_EQ(store.put(1, 1000), 1);
    store.get(1, 1000);  // reads have a client of their own
    EXPECT_EQ(store.get(1, 1000), 1);
  }
}

TEST_F(RedisCluster, AServerThatIsDownCostsItsKeys) {
  Store store(cluster()[0].address());
  Batch in, out;
  for (uint64_t i = 0; i < 300; i++) in.add(i, 1000), out.room(i, 1000);
  ASSERT_EQ(store.put(in), 300);
  const int lost = std::stoi(cluster()[0].ask({"DBSIZE"}));
  cluster()[0].stop();  // This is the server whose address was given.
  EXPECT_EQ(store.get(out), 300 - lost);
  for (int i = 0; i < 5; i++) {
    Batch again, more;
    for (uint64_t k = 0; k < 300; k++) again.room(k, 1000), more.add(k, 1000);
    EXPECT_EQ(store.get(again), 300 - lost);
    EXPECT_EQ(store.put(more), 300 - lost);
    for (uint64_t k = 0; k < 300; k++) {
      const bool down = cluster().owner(pkv::redis::slot_of("pagedkv:" + name(k))) == 0;
      EXPECT_EQ(more.size_of(k), down ? 0 : 1000) << "put says which items were not stored";
    }
  }
  cluster()[0].start();
  cluster().wait_until_ok();
  EXPECT_TRUE(eventually([&] { return store.put(in) == 300; }));
  EXPECT_TRUE(eventually([&] {
    Batch again;
    for (uint64_t k = 0; k < 300; k++) again.room(k, 1000);
    return store.get(again) == 300;
  }));
}

TEST_F(RedisCluster, AServerThatIsStoppedCostsATimeOut) {
  Store store(cluster()[0].address(), hasty_later);
  Batch in;
  for (uint64_t i = 0; i < 300; i++) in.add(i, 1000);
  ASSERT_TRUE(eventually([&] { return store.put(in) == 300; }));
  const int lost = std::stoi(cluster()[2].ask({"DBSIZE"}));
  cluster()[2].signal(SIGSTOP);
  EXPECT_TRUE(eventually([&] {
    const auto begin = Clock::now();
    return store.put(in) == 300 - lost && seconds_since(begin) >= 0.39;
  })) << "the others' answers count in a call that waits";
  EXPECT_TRUE(eventually([&] { return store.put(in) == 300 - lost; }));
  cluster()[2].signal(SIGCONT);
  cluster().wait_until_ok();
  EXPECT_TRUE(eventually([&] { return store.put(in) == 300; }));
}

}  // namespace
}  // namespace redis_test::cluster_test
