// What a configuration may say, and what an open() that fails tells.
#include "support.h"

namespace redis_test {
namespace {

pkv_status open_with(const std::string& servers, const std::function<void(pkv_redis_config&)>& adjust = [](pkv_redis_config&) {}) {
  pkv_redis_config config = config_for(servers);
  adjust(config);
  pkv_store store{};
  const pkv_status status = pkv_redis_open(&config, &store);
  if (status == PKV_OK) store.close(store.user);
  if (status != PKV_OK) {
    EXPECT_EQ(store.close, nullptr) << "a failed open has written its result";
  }
  return status;
}

bool told(const std::string& part) { return std::string(pkv_redis_last_error()).find(part) != std::string::npos; }

TEST(RedisConfig, StructSizes) {
  pkv_redis_config config;
  EXPECT_EQ(pkv_redis_config_init(nullptr, sizeof config), PKV_INVALID_ARGUMENT);
  EXPECT_EQ(pkv_redis_config_init(&config, 0), PKV_INVALID_ARGUMENT);
  EXPECT_EQ(pkv_redis_config_init(&config, SIZE_MAX), PKV_INVALID_ARGUMENT);
  ASSERT_EQ(pkv_redis_config_init(&config, sizeof config), PKV_OK);
  EXPECT_EQ(config.struct_size, sizeof config);

  pkv_store store{};
  EXPECT_EQ(pkv_redis_open(&config, nullptr), PKV_INVALID_ARGUMENT);
  EXPECT_EQ(pkv_redis_open(nullptr, &store), PKV_INVALID_ARGUMENT);
  config.struct_size = 3;
  EXPECT_EQ(pkv_redis_open(&config, &store), PKV_INVALID_ARGUMENT);
}

TEST(RedisConfig, BadValues) {
  const std::string server = "127.0.0.1:1";
  EXPECT_EQ(open_with(server, [](auto& c) { c.connect_timeout_ms = 0; }), PKV_INVALID_ARGUMENT);
  EXPECT_EQ(open_with(server, [](auto& c) { c.command_timeout_ms = 3'600'001; }), PKV_INVALID_ARGUMENT);
  EXPECT_EQ(open_with(server, [](auto& c) { c.pipeline_bytes = (64 << 10) - 1; }), PKV_INVALID_ARGUMENT);
  EXPECT_EQ(open_with(server, [](auto& c) { c.pipeline_bytes = (1 << 30) + 1; }), PKV_INVALID_ARGUMENT);
  EXPECT_EQ(open_with(server, [](auto& c) { c.connect_later = 2; }), PKV_INVALID_ARGUMENT);
  EXPECT_EQ(open_with(server, [](auto& c) { c.reserved = 1; }), PKV_INVALID_ARGUMENT);
  EXPECT_EQ(open_with(server, [](auto& c) { c.servers = nullptr; }), PKV_INVALID_ARGUMENT);
  EXPECT_EQ(open_with(server, [](auto& c) { c.user = "u"; }), PKV_INVALID_ARGUMENT);
  const std::string prefix(65, 'p');
  EXPECT_EQ(open_with(server, [&](auto& c) { c.key_prefix = prefix.c_str(); }), PKV_INVALID_ARGUMENT);
}

TEST(RedisConfig, BadAddresses) {
  for (const char* servers : {"", ",", "a,", ":1", "a:", "a:0", "a:65536", "a:-1", "a:1x", "a:1:2", "[::1", "[]:1", "http://a", "redis://", "redis://a:1/x",
                              "redis://a:1/-1", "redis://u:%4@a", "redis://u:%zz@a", "a b:1", "a:99999999999999999999"}) {
    EXPECT_EQ(open_with(servers), PKV_INVALID_ARGUMENT) << servers;
    EXPECT_TRUE(told("servers")) << pkv_redis_last_error();
  }
}

TEST(RedisConfig, TlsIsRefusedWithASentence) {
  EXPECT_EQ(open_with("rediss://127.0.0.1:6379"), PKV_UNSUPPORTED);
  EXPECT_TRUE(told("TLS")) << pkv_redis_last_error();
}

TEST(RedisConfig, NobodyListens) {
  const int port = free_port();
  const std::string address = "127.0.0.1:" + std::to_string(port);
  EXPECT_EQ(open_with(address), PKV_IO);
  EXPECT_TRUE(told(address) && told("errno 111")) << pkv_redis_last_error();
  EXPECT_EQ(open_with("no-such-host.invalid:" + std::to_string(port)), PKV_IO);
  EXPECT_TRUE(told("no-such-host.invalid")) << pkv_redis_last_error();
  EXPECT_EQ(open_with(address, [](auto& c) { c.connect_later = 1; }), PKV_OK);
}

class RedisPassword : public WithServers {};

TEST_F(RedisPassword, MustBeRight) {
  const Server server({"--requirepass", "a/b@c:d%"});
  EXPECT_EQ(open_with(server.address()), PKV_IO);
  EXPECT_TRUE(told("NOAUTH") && told(server.address())) << pkv_redis_last_error();
  EXPECT_EQ(open_with(server.address(), [](auto& c) { c.password = "wrong"; }), PKV_IO);
  EXPECT_TRUE(told("WRONGPASS")) << pkv_redis_last_error();
  EXPECT_EQ(open_with(server.address(), [](auto& c) { c.password = "a/b@c:d%"; }), PKV_OK);
  EXPECT_EQ(open_with("redis://:a%2fb%40c%3Ad%25@" + server.address()), PKV_OK);
  EXPECT_EQ(open_with("redis://default:a%2fb%40c%3Ad%25@" + server.address() + "/3"), PKV_OK);
  EXPECT_EQ(open_with("redis://nobody:a%2fb%40c%3Ad%25@" + server.address()), PKV_IO);
}

TEST_F(RedisPassword, DatabasesAndAlternatives) {
  const Server server;
  const std::string dead = "127.0.0.1:" + std::to_string(free_port());
  Store three("redis://" + dead + "," + server.address() + "/3");
  ASSERT_EQ(three.put(1, 10), 1);
  EXPECT_EQ(Store(server.address()).get(1, 10), 0);
  EXPECT_EQ(Store("valkey://" + server.address() + "/3").get(1, 10), 1);
  EXPECT_EQ(open_with(server.address() + "/99"), PKV_INVALID_ARGUMENT) << "a database stands in a URL only";
  EXPECT_EQ(open_with("redis://" + server.address() + "/99"), PKV_IO);
  EXPECT_TRUE(told("DB index")) << pkv_redis_last_error();
}

}  // namespace
}  // namespace redis_test
