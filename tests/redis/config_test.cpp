// Valid and invalid configurations, and the sentences of an open() that fails.
#include "support.h"

namespace redis_test::config_test {
namespace {

pkv_status open_with(
    const std::string& servers,
    const std::function<void(pkv_redis_config&)>& adjust = [](pkv_redis_config&) {}) {
  pkv_redis_config config = config_for(servers);
  adjust(config);
  pkv_store store = made<pkv_store>();
  const pkv_status status = pkv_redis_open(&config, &store);
  if (status == PKV_OK) pkv_store_close(&store);
  if (status != PKV_OK) {
    EXPECT_EQ(store.close, nullptr) << "a failed open has written its result";
  }
  return status;
}

bool told(const std::string& part) {
  return std::string(pkv_redis_last_error()).find(part) != std::string::npos;
}

TEST(RedisConfig, StructSizes) {
  auto config = made<pkv_redis_config>();
  pkv_store store = made<pkv_store>();
  EXPECT_EQ(pkv_redis_open(&config, nullptr), PKV_INVALID_ARGUMENT);
  EXPECT_EQ(pkv_redis_open(nullptr, &store), PKV_INVALID_ARGUMENT);
  for (const size_t wrong : {size_t{0}, size_t{3}, sizeof config - 8, sizeof config + 8,
                             size_t{4096}, size_t{UINT32_MAX}}) {
    config.struct_size = static_cast<uint32_t>(wrong);
    EXPECT_EQ(pkv_redis_open(&config, &store), PKV_INVALID_ARGUMENT) << wrong;
  }
}

TEST(RedisConfig, BadValues) {
  const std::string server = "127.0.0.1:1";
  EXPECT_EQ(open_with(server, [](auto& c) { c.connect_timeout_ms = 3'600'001; }),
            PKV_INVALID_ARGUMENT);
  EXPECT_EQ(open_with(server, [](auto& c) { c.command_timeout_ms = 3'600'001; }),
            PKV_INVALID_ARGUMENT);
  EXPECT_EQ(open_with(server, [](auto& c) { c.max_pipeline_bytes = (64 << 10) - 1; }),
            PKV_INVALID_ARGUMENT);
  EXPECT_EQ(open_with(server, [](auto& c) { c.max_pipeline_bytes = (1 << 30) + 1; }),
            PKV_INVALID_ARGUMENT);
  EXPECT_EQ(open_with(server, [](auto& c) { c.connect_later = 2; }), PKV_INVALID_ARGUMENT);
  EXPECT_EQ(open_with(server, [](auto& c) { c.reserved = 1; }), PKV_INVALID_ARGUMENT);
  EXPECT_EQ(open_with(server, [](auto& c) { c.user = "u"; }), PKV_INVALID_ARGUMENT);
  const std::string prefix(65, 'p');
  EXPECT_EQ(open_with(server, [&](auto& c) { c.key_prefix = prefix.c_str(); }),
            PKV_INVALID_ARGUMENT);
}

TEST(RedisConfig, BadAddresses) {
  for (const char* servers : {"",
                              ",",
                              "a,",
                              ":1",
                              "a:",
                              "a:0",
                              "a:65536",
                              "a:-1",
                              "a:1x",
                              "a:1:2",
                              "[::1",
                              "[]:1",
                              "http://a",
                              "redis://",
                              "redis://a:1/x",
                              "redis://a:1/-1",
                              "redis://u:%4@a",
                              "redis://u:%zz@a",
                              "a b:1",
                              "redis://u:p/x@a",
                              "redis://u:p@x@a",
                              "redis://a?b",
                              "[name]:1",
                              "a%20b\\:1",
                              "a\x7f",
                              "\xc3\xa4:1",
                              "a:99999999999999999999"}) {
    EXPECT_EQ(open_with(servers), PKV_INVALID_ARGUMENT) << servers;
    EXPECT_TRUE(told("servers")) << pkv_redis_last_error();
  }
}

// A setting without effect is refused instead of ignored.
TEST(RedisConfig, BadTls) {
  using Config = pkv_redis_config;
  const std::string plain = "127.0.0.1:1", tls = "rediss://127.0.0.1:1";
  const struct {
    const char* field;
    void (*set)(Config&);
  } fields[] = {{"tls_ca_file", [](Config& c) { c.tls_ca_file = "/dev/null"; }},
                {"tls_ca_directory", [](Config& c) { c.tls_ca_directory = "/"; }},
                {"tls_certificate_file", [](Config& c) { c.tls_certificate_file = "/dev/null"; }},
                {"tls_key_file", [](Config& c) { c.tls_key_file = "/dev/null"; }},
                {"tls_server_name", [](Config& c) { c.tls_server_name = "a"; }},
                {"tls_insecure_no_verify", [](Config& c) { c.tls_insecure_no_verify = 1; }}};
  for (const auto& [field, set] : fields) {
    EXPECT_EQ(open_with(plain, set), PKV_INVALID_ARGUMENT) << field << " without TLS";
    EXPECT_TRUE(told(field) && told("tls is 0")) << pkv_redis_last_error();
  }
  const struct {
    const char* part;
    void (*set)(Config&);
  } wrong[] = {{"tls is 2", [](Config& c) { c.tls = 2; }},
               {"tls is 4294967295", [](Config& c) { c.tls = UINT32_MAX; }},
               {"tls_insecure_no_verify is 2", [](Config& c) { c.tls_insecure_no_verify = 2; }},
               {"reserved is 1", [](Config& c) { c.reserved = 1; }},
               {"tls_ca_file is empty", [](Config& c) { c.tls_ca_file = ""; }},
               {"tls_ca_directory is empty", [](Config& c) { c.tls_ca_directory = ""; }},
               {"tls_certificate_file is empty", [](Config& c) { c.tls_certificate_file = ""; }},
               {"tls_key_file is empty", [](Config& c) { c.tls_key_file = ""; }},
               {"tls_server_name is empty", [](Config& c) { c.tls_server_name = ""; }},
               {"tls_server_name", [](Config& c) { c.tls_server_name = "a b"; }},
               {"together", [](Config& c) { c.tls_certificate_file = "/dev/null"; }},
               {"together", [](Config& c) { c.tls_key_file = "/dev/null"; }},
               {"nothing would be checked",
                [](Config& c) { c.tls_insecure_no_verify = 1, c.tls_ca_file = "/dev/null"; }},
               {"nothing would be checked",
                [](Config& c) { c.tls_insecure_no_verify = 1, c.tls_ca_directory = "/"; }}};
  for (const auto& [part, set] : wrong) {
    EXPECT_EQ(open_with(tls, set), PKV_INVALID_ARGUMENT) << part;
    EXPECT_TRUE(told(part)) << pkv_redis_last_error();
  }
#ifndef WITH_TLS
  EXPECT_EQ(open_with(tls), PKV_UNSUPPORTED);
  EXPECT_EQ(open_with(plain, [](Config& c) { c.tls = 1; }), PKV_UNSUPPORTED);
  EXPECT_TRUE(told("OpenSSL")) << pkv_redis_last_error();
#endif
}

// Whether or not a server listens there.
TEST(RedisConfig, ServersByDefault) {
  const pkv_status status = open_with("", [](auto& c) { c.servers = nullptr; });
  if (status == PKV_OK) return;
  EXPECT_EQ(status, PKV_IO);
  EXPECT_TRUE(told("127.0.0.1:6379")) << pkv_redis_last_error();
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
  EXPECT_EQ(open_with(server.address() + "/99"), PKV_INVALID_ARGUMENT)
      << "a database stands in a URL only";
  EXPECT_EQ(open_with("redis://" + server.address() + "/99"), PKV_IO);
  EXPECT_TRUE(told("DB index")) << pkv_redis_last_error();
}

}  // namespace
}  // namespace redis_test::config_test
