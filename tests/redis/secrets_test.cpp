// Once stores are closed, the memory of the process has none of the passwords that it used.
#include <string.h>

#include <fstream>
#include <random>

#include "support.h"
#ifdef WITH_TLS
#include "certificates.h"
#endif

namespace redis_test::secrets_test {
namespace {

constexpr size_t length = 24, part = 8;
constexpr unsigned char mask = 0xa5;

// A password of letters. Only a masked form of it is kept.
class Masked {
 public:
  Masked() {
    std::random_device random;
    for (unsigned char& letter : masked_)
      letter = static_cast<unsigned char>('a' + random() % 26) ^ mask;
  }
  void write(char* to) const {
    for (size_t i = 0; i < length; i++) to[i] = static_cast<char>(masked_[i] ^ mask);
  }
  void write_percent(char* to) const {
    for (size_t i = 0; i < length; i++) std::snprintf(to + 3 * i, 4, "%%%02x", masked_[i] ^ mask);
  }
  // Counts the places in memory that have a third of it, plain or percent-encoded.
  size_t count(const unsigned char* memory, size_t size) const {
    size_t found = 0;
    const unsigned char* const end = memory + size - 3 * part;
    for (size_t at = 0; at < length; at += part) {
      for_each(masked_[at] ^ mask, memory, end,
               [&](const unsigned char* here) { found += is_plain(here, at); });
      for_each('%', memory, end, [&](const unsigned char* here) { found += is_percent(here, at); });
    }
    return found;
  }

 private:
  template <class Use>
  static void for_each(int byte, const unsigned char* memory, const unsigned char* end,
                       const Use& use) {
    while (const void* found = memchr(memory, byte, static_cast<size_t>(end - memory))) {
      memory = static_cast<const unsigned char*>(found);
      use(memory++);
    }
  }
  bool is_plain(const unsigned char* memory, size_t at) const {
    for (size_t i = 0; i < part; i++)
      if ((memory[i] ^ mask) != masked_[at + i]) return false;
    return true;
  }
  bool is_percent(const unsigned char* memory, size_t at) const {
    const auto digit = [](unsigned value) {
      return static_cast<unsigned char>(value < 10 ? '0' + value : 'a' + value - 10);
    };
    for (size_t i = 0; i < part; i++) {
      const unsigned letter = masked_[at + i] ^ mask;
      if (memory[3 * i] != '%' || memory[3 * i + 1] != digit(letter / 16) ||
          memory[3 * i + 2] != digit(letter % 16))
        return false;
    }
    return true;
  }
  unsigned char masked_[length];
};

// Counts copies in all memory that this process can write to.
size_t copies_of(const Masked& secret) {
  size_t found = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    char rights[5] = "";
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, rights) != 3) continue;
    if (rights[0] != 'r' || rights[1] != 'w' || line.find("[v") != std::string::npos) continue;
    found += secret.count(reinterpret_cast<const unsigned char*>(begin), end - begin);
  }
  return found;
}

class RedisSecrets : public WithServers {
 protected:
  // A text of a config with a password in it, which is wiped afterwards.
  struct Text {
    Text(const std::string& begin, const Masked& secret, const std::string& end, bool percent) {
      const size_t size = percent ? 3 * length : length;
      text.resize(begin.size() + size + end.size() + 1);
      memcpy(text.data(), begin.data(), begin.size());
      if (percent)
        secret.write_percent(text.data() + begin.size());
      else
        secret.write(text.data() + begin.size());
      memcpy(text.data() + begin.size() + size, end.data(), end.size());
      text.back() = '\0';
    }
    ~Text() { explicit_bzero(text.data(), text.size()); }
    std::vector<char> text;
  };

  // Checks what an open() leaves in memory while the store is open, and after it is closed. By then
  // the caller's texts are wiped.
  static pkv_status open(pkv_redis_config config, const Masked& secret, const std::string& begin,
                         const std::string& end, bool percent, pkv_store& store) {
    const Text text(begin, secret, end, percent);
    (begin.empty() ? config.password : config.servers) = text.text.data();
    return pkv_redis_open(&config, &store);
  }
  static void check(const pkv_redis_config& config, const std::string& begin,
                    const std::string& end, bool percent, bool works) {
    SCOPED_TRACE(begin + "..." + end);
    const Masked secret;
    ASSERT_EQ(copies_of(secret), 0u);
    pkv_store store = made<pkv_store>();
    const pkv_status status = open(config, secret, begin, end, percent, store);
    EXPECT_EQ(status == PKV_OK, works) << pkv_redis_last_error();
    if (status == PKV_OK) {
      EXPECT_EQ(copies_of(secret), 3u) << "one copy, to connect again, in three parts";
      Batch batch;
      EXPECT_EQ(store.put(store.user, 1, batch.add(1, 1000).items()), 1);
      pkv_store_close(&store);
    }
    EXPECT_EQ(copies_of(secret), 0u);
  }
};

TEST_F(RedisSecrets, TheSearchFindsCopies) {
  const Masked secret;
  std::vector<char> text(3 * length + 1);
  secret.write(text.data());
  EXPECT_EQ(copies_of(secret), 3u);
  secret.write_percent(text.data());
  EXPECT_EQ(copies_of(secret), 3u);
  explicit_bzero(text.data(), text.size());
  EXPECT_EQ(copies_of(secret), 0u);
}

TEST_F(RedisSecrets, NoneIsLeftAfterClose) {
  const Server open_to_all, closed({"--requirepass", "another"});
  for (const bool percent : {false, true}) {
    const std::string servers = open_to_all.address(), refusing = closed.address();
    pkv_redis_config config = config_for(servers);
    check(config, "redis://default:", std::string("@") + servers, percent, true);
    check(config, "redis://default:", std::string("@") + refusing, percent, false);
    check(config, "redis://default:", std::string("@") + servers + "/x", percent, false);
    check(config, "redis://default:", std::string("%zz@") + servers, percent, false);
    check(config, "redis://default:", "@127.0.0.1:1", percent, false);
    check(config, "redis://default:", "", percent, false);
    if (percent) continue;
    config.user = "default";
    check(config, "", "", false, true);
    config.servers = refusing.c_str();
    check(config, "", "", false, false);
    config.servers = servers.c_str();
    config.tls_ca_file = "without TLS";
    check(config, "", "", false, false);
  }
}

#ifdef WITH_TLS
TEST_F(RedisSecrets, NoneIsLeftAfterCloseWithTls) {
  if (!have_tls_server()) GTEST_SKIP() << "no redis-server or valkey-server with TLS is installed";
  const Certificates certificates;
  const Server server({}, TlsFiles{certificates.certificate("server"), certificates.key("server"),
                                   certificates.certificate("ca")});
  const std::string ca = certificates.certificate("ca"),
                    other = certificates.certificate("other-ca");
  for (const bool percent : {false, true}) {
    const std::string end = std::string("@").append(server.tls_address());
    pkv_redis_config config = config_for(end);
    config.tls_ca_file = ca.c_str();
    check(config, "rediss://default:", end, percent, true);
    config.tls_ca_file = other.c_str();
    check(config, "rediss://default:", end, percent, false);
  }
}
#endif

}  // namespace
}  // namespace redis_test::secrets_test
