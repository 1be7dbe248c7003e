// The trust of a client: no sentence contains a secret, credentials are sent only to named servers,
// and an answer counts only if its command was sent.
#include <atomic>
#include <mutex>
#include <set>

#include "fake.h"
#include "support.h"

namespace redis_test::trust_test {
namespace {

// No other text here contains four consecutive bytes of it.
const std::string secret = "Zq7vXk9wJ2pQ";

std::string percent(const std::string& text) {
  std::string all;
  for (const char byte : text) {
    char three[4];
    std::snprintf(three, sizeof three, "%%%02x", static_cast<unsigned>(byte));
    all += three;
  }
  return all;
}

// Returns the first four bytes of the secret that a text contains, plain or encoded.
std::string part_in(const std::string& text) {
  std::string reversed(secret.rbegin(), secret.rend());
  for (const std::string& form : {secret, percent(secret), reversed})
    for (size_t i = 0; i + 4 <= form.size(); i++)
      if (text.find(form.substr(i, 4)) != std::string::npos) return form.substr(i, 4);
  return "";
}

// Returns the sentence of an open() that fails, or "" if it works.
std::string sentence_of(
    const std::string& servers, const char* user = nullptr, const char* password = nullptr,
    const std::function<void(pkv_redis_config&)>& adjust = [](pkv_redis_config&) {}) {
  pkv_redis_config config = config_for(servers);
  config.user = user;
  config.password = password;
  adjust(config);
  pkv_store store = made<pkv_store>();
  if (pkv_redis_open(&config, &store) != PKV_OK) return pkv_redis_last_error();
  pkv_store_close(&store);
  return "";
}

// Makes a URL with a password, and versions of it with typing errors.
std::set<std::string> malformed_urls() {
  std::set<std::string> all;
  const std::string host = "127.0.0.1:" + std::to_string(free_port());
  for (const std::string& word : {secret, percent(secret)}) {
    for (const std::string scheme : {"redis://", "http://", "redis:/", "redis//", "://", ""}) {
      for (const std::string user : {"", "user", "us%er"}) {
        const std::string begin = scheme + user + ":", url = begin + word + "@" + host + "/0";
        all.insert(url);
        all.insert(url + "," + url);
        all.insert(url + "x");
        all.insert(begin + word + "@");
        all.insert(begin + word + "@" + host + "?password=" + word);
        for (size_t i = 0; i < url.size(); i++) {
          all.insert(std::string(url).erase(i, 1));
          // Any text in the place of a host is taken for a host.
          if (i > begin.size()) all.insert(url.substr(0, i));
        }
        if (scheme != "redis://" && scheme != "") continue;
        for (size_t i = begin.size(); i <= begin.size() + word.size(); i++)
          for (const char* added :
               {"/", "?", "#", "@", ":", "[", "]", "%", ",", " ", "%zz", "://", "\n"})
            all.insert(std::string(url).insert(i, added));
      }
    }
  }
  return all;
}

TEST(RedisTrust, NoSentenceHoldsAPartOfAPassword) {
  ASSERT_EQ(part_in("a sentence with 127.0.0.1:6379 in it"), "");
  ASSERT_EQ(part_in("a sentence with vXk9 in it"), "vXk9");
  ASSERT_EQ(part_in("or %76%58 in it"), "%76%");
  size_t refused = 0;
  auto urls = malformed_urls();
  urls.insert("rediss://user:" + secret + "@127.0.0.1:1");
  urls.insert("rediss://user:" + secret + "127.0.0.1:1");
  for (const std::string& url : urls) {
    const std::string sentence = sentence_of(url);
    refused += !sentence.empty();
    ASSERT_EQ(part_in(sentence), "") << sentence;
  }
  EXPECT_EQ(refused, urls.size()) << "nobody listens";
}

TEST(RedisTrust, NoSentenceHoldsWhatAServerEchoes) {
  const std::string reversed(secret.rbegin(), secret.rend());
  std::vector<std::string> echoes;
  for (const std::string& word : {secret, reversed}) {
    for (const char* code : {"", "ERR ", "WRONGPASS ", "NOAUTH ", "NOPERM ",
                             "ERR invalid password ", "LOADING ", "MOVED 1 "})
      echoes.push_back(std::string("-").append(code).append(word).append("\r\n"));
    echoes.push_back(std::string("$")
                         .append(std::to_string(word.size()))
                         .append("\r\n")
                         .append(word)
                         .append("\r\n"));
    echoes.push_back(word + "\r\n");
    echoes.push_back("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$" + std::to_string(word.size()) + "\r\n" +
                     word + "\r\n:1\r\n");
  }
  size_t refused = 0;
  for (const std::string& echo : echoes) {
    for (const std::string to : {"AUTH", "SELECT", "PING", "CLUSTER", "HELLO", "SET"}) {
      const FakeServer server(
          [&](const Command& command) {
            if (command[0] == "CLUSTER" && to == "HELLO") return Answer{"-NOPERM\r\n"};
            return Answer{command[0] == to          ? echo
                          : command[0] == "CLUSTER" ? "-ERR none\r\n"
                                                    : "+OK\r\n"};
          },
          false);
      const std::string sentence =
          sentence_of("redis://" + server.address() + "/1", "default", secret.c_str());
      refused += !sentence.empty();
      EXPECT_EQ(part_in(sentence), "") << sentence;
    }
  }
  EXPECT_GT(refused, echoes.size() * 3);
}

// ---- Redirections -------------------------------------------------------------------------------

// A server that must not be reached.
class Trap {
 public:
  std::string address() const { return server_.address(); }
  int reached() const { return server_.accepted(); }

 private:
  FakeServer server_{[](const Command&) { return Answer{"$-1\r\n"}; }};
};

void with_password(pkv_redis_config& config) { config.password = secret.c_str(); }

TEST(RedisTrust, AServerWithoutClusterLeadsNowhere) {
  const Trap trap;
  for (const std::string redirection : {"-MOVED 5 ", "-ASK 5 "}) {
    const FakeServer server([&](const Command& command) {
      return Answer{command[0] == "AUTH" ? "+OK\r\n" : redirection + trap.address() + "\r\n"};
    });
    Store store(server.address(), with_password);
    for (int i = 0; i < 3; i++) EXPECT_EQ(store.get(1, 1000), 0);
    EXPECT_EQ(store.put(1, 1000), 0);
  }
  EXPECT_EQ(trap.reached(), 0);
}

// A cluster whose map the test makes.
class MappedServer {
 public:
  explicit MappedServer(FakeServer::Script script)
      : server_(
            [this, script = std::move(script)](const Command& command) {
              if (command[0] == "AUTH") authenticated++;
              if (command[0] == "AUTH" || command[0] == "PING" || command[0] == "ASKING")
                return Answer{"+OK\r\n"};
              if (command[1].ends_with(":rights")) return Answer{"$-1\r\n"};
              if (command[0] != "CLUSTER") return script(command);
              asked++;
              const std::lock_guard lock(mutex_);
              return Answer{map_};
            },
            false) {
    set_map(server_.map());
  }
  void set_map(const std::string& map) {
    const std::lock_guard lock(mutex_);
    map_ = map;
  }
  std::string address() const { return server_.address(); }
  std::string own_map() const { return server_.map(); }
  int accepted() const { return server_.accepted(); }
  std::atomic<int> authenticated = 0, asked = 0;

 private:
  std::mutex mutex_;
  std::string map_;
  FakeServer server_;
};

TEST(RedisTrust, AClusterLeadsToItsOwnServersOnly) {
  const Trap trap;
  for (const std::string redirection : {"-MOVED 5 ", "-ASK 5 "}) {
    MappedServer server(
        [&](const Command&) { return Answer{redirection + trap.address() + "\r\n"}; });
    Store store(server.address(), with_password);
    EXPECT_EQ(store.get(1, 1000), 0);
    EXPECT_GT(server.asked, 2) << "a configured server is asked whether that one has joined";
  }
  EXPECT_EQ(trap.reached(), 0);
}

TEST(RedisTrust, AServerThatJoinedIsFollowed) {
  MappedServer second([](const Command&) { return Answer{"$3\r\nabc\r\n"}; });
  MappedServer* there = &second;
  MappedServer first(
      [&](const Command&) { return Answer{"-MOVED 5 " + there->address() + "\r\n"}; });
  Store store(first.address(), with_password);
  first.set_map(second.own_map());
  Batch batch;
  EXPECT_EQ(store.get(batch.room(1, 3)), 1);
  EXPECT_EQ(batch.value(0), "abc");
  EXPECT_EQ(second.authenticated, 1);
}

// A server that was not configured is not asked for the members of the cluster.
TEST(RedisTrust, OnlyConfiguredServersSayWhoBelongsToACluster) {
  const Trap trap;
  MappedServer second(
      [&](const Command&) { return Answer{"-MOVED 5 " + trap.address() + "\r\n"}; });
  MappedServer first([](const Command&) { return Answer{"$-1\r\n"}; });
  first.set_map(second.own_map());
  Store store(first.address(), with_password);
  for (int i = 0; i < 3; i++) EXPECT_EQ(store.get(1, 3), 0);
  EXPECT_EQ(second.asked, 0);
  EXPECT_EQ(trap.reached(), 0);
}

TEST(RedisTrust, AMapWithTextsThatAreNoHostsIsNone) {
  for (const std::string& host :
       {std::string("a b"), std::string("a/b"), std::string("a@b"), std::string("a\0b", 3),
        std::string(256, 'a'), std::string("\x1b[31m")}) {
    MappedServer server([](const Command&) { return Answer{"$-1\r\n"}; });
    server.set_map("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$" + std::to_string(host.size()) + "\r\n" +
                   host + "\r\n:1\r\n");
    EXPECT_NE(sentence_of(server.address()).find("CLUSTER SLOTS"), std::string::npos)
        << pkv_redis_last_error();
  }
}

// ---- Answers that come too early ----------------------------------------------------------------

// The rest of the command would be read as the beginning of the next one, and so store a value
// under another name.
TEST(RedisTrust, AnAnswerBeforeTheWholeCommandIsSentIsNone) {
  std::atomic<int> sets = 0;
  FakeServer server([&](const Command& command) {
    if (command[0] == "SET") sets++;
    return Answer{"+OK\r\n"};
  });
  server.answer_early(64 << 10, "+OK\r\n");
  Store store(server.address());
  EXPECT_EQ(store.put(1, 64 << 20), -EPROTO);
  EXPECT_EQ(sets, 0);
  EXPECT_TRUE(eventually([&] { return store.put(2, 1000) == 1; }));
  EXPECT_EQ(sets, 1) << "on a new connection";
}

// ---- Rights -------------------------------------------------------------------------------------

class RedisRights : public WithServers {};

TEST_F(RedisRights, AUserWithoutARightIsToldWhich) {
  const Server server;
  const std::string all[] = {"+ping", "+strlen", "+getrange", "+del", "+set"};
  const char* const names[] = {"PING", "STRLEN", "GETRANGE", "DEL", "SET"};
  for (size_t missing = 0; missing <= std::size(all); missing++) {
    std::vector<std::string> rights = {"ACL", "SETUSER",   "limited",   "reset",
                                       "on",  ">password", "~pagedkv:*"};
    for (size_t i = 0; i < std::size(all); i++)
      if (i != missing) rights.push_back(all[i]);
    ASSERT_EQ(server.ask(rights), "OK");
    const std::string sentence = sentence_of(server.address(), "limited", "password");
    if (missing == std::size(all)) {
      EXPECT_EQ(sentence, "") << "no other right is needed without a cluster";
    } else {
      EXPECT_NE(sentence.find(names[missing] + std::string(" was refused: NOPERM")),
                std::string::npos)
          << sentence;
      EXPECT_NE(sentence.find(server.address()), std::string::npos) << sentence;
    }
  }
  ASSERT_EQ(server.ask({"ACL", "SETUSER", "limited", "resetkeys", "~other:*"}), "OK");
  EXPECT_NE(sentence_of(server.address(), "limited", "password").find("NOPERM"), std::string::npos);
  EXPECT_NE(sentence_of(server.address(), "limited", "wrong").find("WRONGPASS"), std::string::npos);
  const auto mortal = [](pkv_redis_config& config) { config.ttl_seconds = 1; };
  ASSERT_EQ(server.ask({"ACL", "SETUSER", "limited", "resetkeys", "~pagedkv:*"}), "OK");
  EXPECT_NE(sentence_of(server.address(), "limited", "password", mortal)
                .find("EXPIRE was refused: NOPERM"),
            std::string::npos);
  ASSERT_EQ(server.ask({"ACL", "SETUSER", "limited", "+expire"}), "OK");
  EXPECT_EQ(sentence_of(server.address(), "limited", "password", mortal), "");
  ASSERT_EQ(server.ask({"ACL", "SETUSER", "limited", "off"}), "OK");
  EXPECT_NE(sentence_of(server.address(), "limited", "password").find("WRONGPASS"),
            std::string::npos);
}

TEST_F(RedisRights, AUserOfAClusterMayAskForItsServers) {
  Cluster cluster;
  for (size_t i = 0; i < cluster.size(); i++) {
    ASSERT_EQ(cluster[i].ask({"ACL", "SETUSER", "limited", "on", ">password", "~*", "+ping",
                              "+strlen", "+getrange", "+del", "+set"}),
              "OK");
  }
  const std::string sentence = sentence_of(cluster[0].address(), "limited", "password");
  EXPECT_NE(sentence.find("CLUSTER SLOTS was refused: NOPERM"), std::string::npos) << sentence;
  for (size_t i = 0; i < cluster.size(); i++)
    ASSERT_EQ(cluster[i].ask({"ACL", "SETUSER", "limited", "+cluster|slots", "+asking"}), "OK");
  Store store("redis://limited:password@" + cluster[0].address());
  for (uint64_t i = 0; i < 30; i++) EXPECT_EQ(store.put(i, 100), 1);
}

}  // namespace
}  // namespace redis_test::trust_test
