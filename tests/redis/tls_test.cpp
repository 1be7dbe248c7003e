// Stores with TLS accept only the intended server. Everything else fails with a clear sentence.
#include <netinet/in.h>
#include <openssl/opensslv.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>

#include "certificates.h"
#include "fake.h"
#include "proxy.h"
#include "support.h"

namespace redis_test::tls_test {
namespace {

using Adjust = std::function<void(pkv_redis_config&)>;

class RedisTls : public testing::Test {
 protected:
  static void SetUpTestSuite() { certificates_ = new Certificates; }
  static void TearDownTestSuite() {
    delete certificates_;
    certificates_ = nullptr;
  }
  void SetUp() override {
    if (!have_tls_server())
      GTEST_SKIP() << "no redis-server or valkey-server with TLS is installed";
  }

  static Certificates& certificates() { return *certificates_; }
  static TlsFiles files(const std::string& name = "server") {
    return {certificates().certificate(name), certificates().key(name),
            certificates().certificate("ca")};
  }
  static void with_ca(pkv_redis_config& config) {
    static std::string ca;
    config.tls_ca_file = (ca = certificates().certificate("ca")).c_str();
  }

  // Returns the error sentence, or "" if the store can be opened.
  static std::string open_with(const std::string& servers, const Adjust& adjust) {
    pkv_redis_config config = config_for(servers);
    adjust(config);
    pkv_store store = made<pkv_store>();
    if (pkv_redis_open(&config, &store) != PKV_OK) return pkv_redis_last_error();
    pkv_store_close(&store);
    return "";
  }

 private:
  inline static Certificates* certificates_ = nullptr;
};

TEST_F(RedisTls, RoundTripsOfAnySize) {
  const Server server({}, files());
  const std::string ca = certificates().certificate("ca");
  for (const uint64_t max_bytes : {64u << 10, 8u << 20, 1u << 30}) {
    Store store("rediss://" + server.tls_address(), [&](pkv_redis_config& config) {
      config.max_pipeline_bytes = max_bytes;
      config.tls_ca_file = ca.c_str();
    });
    const std::vector<size_t> sizes = {1,     13,    4095,  4096,      4097,   16383,
                                       16384, 16385, 65537, 1'000'003, 8 << 20};
    Batch in, out;
    for (size_t i = 0; i < 60; i++)
      in.add(i, sizes[i % sizes.size()]), out.room(i, sizes[i % sizes.size()]);
    ASSERT_EQ(store.put(in), 60);
    ASSERT_EQ(store.get(out), 60);
    for (size_t i = 0; i < 60; i++) {
      ASSERT_TRUE(out.value(i) == bytes(sizes[i % sizes.size()], i)) << i;
      ASSERT_TRUE(out.untouched(i));
    }
    EXPECT_EQ(store.remove(in), 60);
  }
}

TEST_F(RedisTls, BelievesTheAddressOfIPv6ThatTheCertificateHas) {
  if (!have_ipv6()) GTEST_SKIP() << "this machine has no ::1";
  certificates().make("ipv6", {.names = "IP:::1"});
  for (const auto& [shown, sentence] :
       {std::pair("ipv6", ""), std::pair("server", "IP address mismatch")}) {
    const Server server({"--bind", "127.0.0.1", "::1"}, files(shown));
    const std::string said =
        open_with("rediss://[::1]:" + std::to_string(server.tls_port()), with_ca);
    EXPECT_TRUE(sentence[0] == '\0' ? said.empty() : said.find(sentence) != std::string::npos)
        << shown << ": " << said;
  }
}

TEST_F(RedisTls, IsChosenByTheUrlOrTheConfig) {
  const Server server({"--requirepass", "secret"}, files());
  for (const char* scheme : {"rediss://:secret@", "valkeys://:secret@"})
    EXPECT_EQ(open_with(scheme + server.tls_address() + "/1", with_ca), "");
  for (const std::string& servers : {server.tls_address(), "redis://" + server.tls_address()})
    EXPECT_EQ(open_with(servers,
                        [&](pkv_redis_config& config) {
                          with_ca(config);
                          config.tls = 1;
                          config.password = "secret";
                        }),
              "");
  EXPECT_NE(open_with("rediss://:wrong@" + server.tls_address(), with_ca).find("WRONGPASS"),
            std::string::npos);
}

// ---- Certificates -------------------------------------------------------------------------------

// The server's certificate, what the client expects, and a part of the sentence, "" if the server
// is accepted.
struct Shown {
  const char* what;
  CertificateOptions certificate;
  const char* ca;
  const char* server_name;
  const char* sentence;
};

// Versions of OpenSSL write it with and without the hyphen.
constexpr const char* self_signed =
    OPENSSL_VERSION_NUMBER >= 0x30000000L ? "self-signed certificate" : "self signed certificate";

const Shown all_shown[] = {
    {"the right one", {}, "ca", nullptr, ""},
    {"another name is asked for", {}, "ca", "localhost", ""},
    {"a CA that nobody trusts", {}, "other-ca", nullptr, self_signed},
    {"the system's CAs", {}, nullptr, nullptr, self_signed},
    {"a CA of the same name",
     {.signed_by = "other-ca"},
     "ca",
     nullptr,
     "unable to get local issuer certificate"},
    {"self-signed", {.signed_by = ""}, "ca", nullptr, self_signed},
    {"an end entity's as CA",
     {.common_name = "leaf", .signed_by = "server"},
     "ca",
     nullptr,
     "unable to get local issuer certificate"},
    {"expired", {.valid_from = -7200, .valid_to = -3600}, "ca", nullptr, "certificate has expired"},
    {"not yet valid",
     {.valid_from = 3600, .valid_to = 7200},
     "ca",
     nullptr,
     "certificate is not yet valid"},
    {"another address", {.names = "IP:127.0.0.2"}, "ca", nullptr, "IP address mismatch"},
    {"names, but an address is wanted",
     {.names = "DNS:localhost"},
     "ca",
     nullptr,
     "IP address mismatch"},
    {"an address as a name", {.names = "DNS:127.0.0.1"}, "ca", nullptr, "IP address mismatch"},
    {"no names", {.names = "", .common_name = "127.0.0.1"}, "ca", nullptr, "IP address mismatch"},
    {"a common name alone",
     {.names = "", .common_name = "kv.example"},
     "ca",
     "kv.example",
     "ostname mismatch"},
    {"another name", {.names = "DNS:other.example"}, "ca", "kv.example", "ostname mismatch"},
    {"a name with this prefix",
     {.names = "DNS:kv.example.org"},
     "ca",
     "kv.example",
     "ostname mismatch"},
    {"the name", {.names = "DNS:kv.example"}, "ca", "kv.example", ""},
    {"the name in capitals", {.names = "DNS:KV.Example"}, "ca", "kv.example", ""},
    {"any name of a domain", {.names = "DNS:*.example.org"}, "ca", "kv.example.org", ""},
    {"any name of a domain above",
     {.names = "DNS:*.example.org"},
     "ca",
     "a.kv.example.org",
     "ostname mismatch"},
    {"a part of a name",
     {.names = "DNS:k*.example.org"},
     "ca",
     "kv.example.org",
     "ostname mismatch"},
};

TEST_F(RedisTls, OnlyTheServerThatWasMeantIsBelieved) {
  for (const Shown& shown : all_shown) {
    SCOPED_TRACE(shown.what);
    certificates().make("shown", shown.certificate);
    const Server server({}, files("shown"));
    const std::string ca = shown.ca != nullptr ? certificates().certificate(shown.ca) : "";
    const auto adjust = [&](pkv_redis_config& config) {
      if (shown.ca != nullptr) config.tls_ca_file = ca.c_str();
      config.tls_server_name = shown.server_name;
      config.password = "never sent";
    };
    const std::string sentence = open_with("rediss://" + server.tls_address(), adjust);
    if (*shown.sentence == '\0') {
      EXPECT_NE(sentence.find("refused"), std::string::npos)
          << "the server has no such password: " << sentence;
      EXPECT_EQ(sentence.find("certificate"), std::string::npos) << sentence;
    } else {
      EXPECT_NE(sentence.find(shown.sentence), std::string::npos) << sentence;
      EXPECT_NE(sentence.find(server.tls_address()), std::string::npos) << sentence;
      EXPECT_NE(sentence.find("X509 error "), std::string::npos) << sentence;
    }
    const auto insecure = [&](pkv_redis_config& config) {
      config.tls_server_name = shown.server_name;
      config.tls_insecure_no_verify = 1;
    };
    EXPECT_EQ(open_with("rediss://" + server.tls_address(), insecure), "")
        << "the caller asked for it";
  }
}

TEST_F(RedisTls, CAsInADirectory) {
  const Server server({}, files());
  for (const char* ca : {"ca", "other-ca"}) {
    const std::string directory = certificates().directory_of(ca);
    const std::string sentence =
        open_with("rediss://" + server.tls_address(),
                  [&](pkv_redis_config& config) { config.tls_ca_directory = directory.c_str(); });
    EXPECT_EQ(sentence.empty(), ca == std::string("ca")) << sentence;
  }
}

TEST_F(RedisTls, AServerThatAsksForACertificate) {
  TlsFiles asking = files();
  asking.asks_clients = true;
  certificates().make("client", {.names = "", .common_name = "client"});
  certificates().make("stranger", {.names = "", .common_name = "client", .signed_by = "other-ca"});
  // In TLS 1.3 a client learns of the refusal after its handshake.
  for (const char* protocol : {"TLSv1.2", "TLSv1.3"}) {
    const Server server({"--tls-protocols", protocol}, asking);
    const auto as = [&](const char* name) {
      return open_with("rediss://" + server.tls_address(), [&](pkv_redis_config& config) {
        static std::string ca, certificate, key;
        ca = certificates().certificate("ca");
        certificate = certificates().certificate(name), key = certificates().key(name);
        config.tls_ca_file = ca.c_str();
        if (*name != '\0')
          config.tls_certificate_file = certificate.c_str(), config.tls_key_file = key.c_str();
      });
    };
    EXPECT_EQ(as("client"), "");
    for (const char* name : {"", "stranger"}) {
      const std::string sentence = as(name);
      EXPECT_NE(sentence.find("TLS: "), std::string::npos)
          << protocol << " '" << name << "': " << sentence;
      EXPECT_NE(sentence.find("alert"), std::string::npos)
          << protocol << " '" << name << "': " << sentence;
    }
  }
}

#if OPENSSL_VERSION_NUMBER >= 0x30000000L
// A server that answers no command: after the handshake it sends nothing but session tickets.
class TicketServer {
 public:
  explicit TicketServer(const TlsFiles& files) : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    socklen_t size = sizeof address_;
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const address = reinterpret_cast<sockaddr*>(&address_);
    if (bind(listener_, address, size) != 0 || listen(listener_, 4) != 0 ||
        getsockname(listener_, address, &size) != 0 ||
        SSL_CTX_use_certificate_chain_file(context_, files.certificate.c_str()) != 1 ||
        SSL_CTX_use_PrivateKey_file(context_, files.key.c_str(), SSL_FILETYPE_PEM) != 1)
      std::abort();
    thread_ = std::thread([this] { serve(); });
  }
  ~TicketServer() {
    stop_ = true;
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
    SSL_CTX_free(context_);
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(ntohs(address_.sin_port)); }
  uint64_t bytes_sent() const { return sent_; }

 private:
  void serve() {
    sigset_t pipes;
    sigemptyset(&pipes);
    sigaddset(&pipes, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipes, nullptr);
    for (int client; (client = accept(listener_, nullptr, nullptr)) >= 0; close(client)) {
      SSL* const ssl = SSL_new(context_);
      SSL_set_fd(ssl, client);
      if (SSL_accept(ssl) == 1)
        // OpenSSL does not notice if no one reads a ticket.
        while (!stop_ && SSL_new_session_ticket(ssl) == 1 && SSL_do_handshake(ssl) == 1)
          sent_ = BIO_number_written(SSL_get_wbio(ssl));
      SSL_free(ssl);
    }
  }

  SSL_CTX* const context_ = SSL_CTX_new(TLS_server_method());
  const int listener_;
  sockaddr_in address_{};
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> sent_{0};
  std::thread thread_;
};

TEST_F(RedisTls, AServerThatSendsTicketsForEver) {
  const TicketServer server(files());
  // A slow machine needs longer than the first timeouts to reach the tickets.
  std::string sentence;
  uint32_t timeout = 500;
  EXPECT_TRUE(eventually([&] {
    sentence = open_with("rediss://" + server.address(), [&](pkv_redis_config& config) {
      with_ca(config);
      config.connect_timeout_ms = config.command_timeout_ms = timeout;
    });
    timeout *= 2;
    return sentence.find("no answer in time") != std::string::npos && server.bytes_sent() > 10'000;
  })) << sentence;
}
#endif

TEST_F(RedisTls, FilesThatCannotBeUsed) {
  const std::string missing = certificates().path("missing"),
                    garbage = certificates().path("garbage");
  std::ofstream(garbage) << "-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n";
  const std::string ca = certificates().certificate("ca"), key = certificates().key("server");
  const std::string certificate = certificates().certificate("server"),
                    encrypted = certificates().encrypted_key("server");
  const struct {
    const char *ca_file, *ca_directory, *certificate, *key, *sentence;
  } all[] = {
      {missing.c_str(), nullptr, nullptr, nullptr, "tls_ca_file: '"},
      {garbage.c_str(), nullptr, nullptr, nullptr, "tls_ca_file: '"},
      {"/", nullptr, nullptr, nullptr, "tls_ca_file: '/'"},
      {"/dev/null", nullptr, nullptr, nullptr, "tls_ca_file: '/dev/null'"},
      {nullptr, missing.c_str(), nullptr, nullptr, "No such file or directory (errno 2)"},
      {nullptr, ca.c_str(), nullptr, nullptr, "Not a directory (errno 20)"},
      {ca.c_str(), nullptr, missing.c_str(), key.c_str(), "No such file or directory (errno 2)"},
      {ca.c_str(), nullptr, garbage.c_str(), key.c_str(), "tls_certificate_file: '"},
      {ca.c_str(), nullptr, certificate.c_str(), missing.c_str(),
       "No such file or directory (errno 2)"},
      {ca.c_str(), nullptr, certificate.c_str(), ca.c_str(), "tls_key_file: '"},
      {ca.c_str(), nullptr, ca.c_str(), key.c_str(), "key values mismatch"},
      {ca.c_str(), nullptr, certificate.c_str(), encrypted.c_str(), "tls_key_file: '"},
  };
  for (const auto& each : all) {
    const std::string sentence = open_with("rediss://127.0.0.1:1", [&](pkv_redis_config& config) {
      config.tls_ca_file = each.ca_file;
      config.tls_ca_directory = each.ca_directory;
      config.tls_certificate_file = each.certificate;
      config.tls_key_file = each.key;
    });
    EXPECT_NE(sentence.find(each.sentence), std::string::npos) << each.sentence << ": " << sentence;
  }
}

// ---- Protocols ----------------------------------------------------------------------------------

TEST_F(RedisTls, OldProtocolsAreRefused) {
  const Server old({"--tls-protocols", "TLSv1.1", "--tls-ciphers", "DEFAULT:@SECLEVEL=0"}, files());
  EXPECT_NE(open_with("rediss://" + old.tls_address(), with_ca).find("TLS: "), std::string::npos);
  const Server good({"--tls-protocols", "TLSv1.2"}, files());
  EXPECT_EQ(open_with("rediss://" + good.tls_address(), with_ca), "");
}

TEST_F(RedisTls, OneSideWithoutTls) {
  const Server server({}, files());
  const std::string sentence =
      open_with("rediss://" + server.address(), [](pkv_redis_config& config) {
        with_ca(config);
        hasty(config);
      });
  EXPECT_NE(sentence.find("no TLS handshake in time"), std::string::npos) << sentence;
  EXPECT_NE(open_with(server.tls_address(), [](pkv_redis_config&) {}).find("closed the connection"),
            std::string::npos)
      << pkv_redis_last_error();
}

TEST_F(RedisTls, NonsenseInThePlaceOfAHandshake) {
  for (const std::string& nonsense :
       {std::string("\x16\x03\x03\xff\xff", 5) + std::string(1 << 20, 'x'),
        std::string("\x15\x03\x03\x00\x02\x02\x28", 7), std::string(1 << 20, '\0'),
        std::string("+OK\r\n")}) {
    FakeServer server([](const Command&) { return Answer{""}; });
    server.answer_early(1, nonsense);
    const std::string sentence =
        open_with("rediss://" + server.address(),
                  [](pkv_redis_config& config) { config.tls_insecure_no_verify = 1; });
    EXPECT_NE(sentence.find("TLS: "), std::string::npos) << sentence;
  }
}

// ---- Failures -----------------------------------------------------------------------------------

TEST_F(RedisTls, AServerIsStartedAgain) {
  Server server({}, files());
  Store store("rediss://" + server.tls_address(), with_ca);
  ASSERT_EQ(store.put(1, 1000), 1);
  server.stop();
  server.start();
  EXPECT_EQ(store.put(2, 1000), 1) << "a connection that ended while nobody used it is no failure";
  EXPECT_EQ(store.get(2, 1000), 1);
  server.stop();
  EXPECT_LT(store.put(3, 1000), 0);
  server.start();
  EXPECT_TRUE(eventually([&] { return store.put(4, 1000) == 1; }));
}

TEST_F(RedisTls, AnUnusedConnectionStays) {
  const Server server({}, files());
  Store store("rediss://" + server.tls_address(), with_ca);
  for (int i = 0; i < 20; i++) ASSERT_EQ(store.put(1, 1000), 1);
  const std::string info = server.ask({"INFO", "stats"});
  const size_t at = info.find("total_connections_received:") + 27;
  EXPECT_LE(std::stoi(info.substr(at)), 40) << "two, and those that ask for this";
}

TEST_F(RedisTls, BytesOneByOne) {
  const Server server({}, files());
  Proxy proxy(server.tls_port());
  proxy.cut(1);
  Store store("rediss://" + proxy.address(), with_ca);
  EXPECT_EQ(store.put(1, 100'000), 1);
  EXPECT_EQ(store.get(1, 100'000), 1);
}

// A server that stops at any byte of the handshake, of the greeting or of a reply costs time-outs:
// no call hangs.
TEST_F(RedisTls, AServerThatStopsAnywhereCostsTheTimeOuts) {
  const Server server({}, files());
  for (const bool tls : {true, false}) {
    const auto use = [&](const Proxy& proxy, const auto& adjust) {
      const std::string url = (tls ? "rediss://" : "redis://") + proxy.address();
      pkv_redis_config config = config_for(url);
      if (tls) config.tls_insecure_no_verify = 1;
      adjust(config);
      pkv_store store = made<pkv_store>();
      if (pkv_redis_open(&config, &store) != PKV_OK) return false;
      Batch in, out;
      const bool put = store.put(store.user, 1, in.add(1, 1000).items()) == 1;
      const bool got = store.get(store.user, 1, out.room(1, 1000).items()) == 1;
      pkv_store_close(&store);
      return put && got;
    };
    uint64_t whole = 0;
    {
      Proxy proxy(tls ? server.tls_port() : server.port());
      EXPECT_TRUE(use(proxy, [](pkv_redis_config&) {}));
      whole = proxy.passed();
    }
    ASSERT_GT(whole, 1000u);
    for (int step = 0; step < 16; step++) {
      Proxy proxy(tls ? server.tls_port() : server.port());
      // The last one ends within the value, since signatures differ by some bytes in length.
      const uint64_t bytes = (whole - 500) * static_cast<uint64_t>(step) / 15;
      proxy.pass(bytes);
      EXPECT_FALSE(use(proxy, hasty)) << "after " << bytes << " of " << whole << " bytes";
    }
  }
}

TEST_F(RedisTls, AfterAForkOnlyTheParentUsesIt) {
  const Server server({}, files());
  auto store = std::make_unique<Store>("rediss://" + server.tls_address(), with_ca);
  ASSERT_EQ(store->put(1, 1000), 1);
  const pid_t child = fork();
  if (child == 0) {
    const bool right = store->get(1, 1000) == -ECHILD;
    store.reset();
    _exit(right && !HasFailure() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(store->get(1, 1000), 1) << "the child's close left the connection alone";
}

TEST_F(RedisTls, ThreadsReadAndWriteAtOnce) {
  const Server server({}, files());
  Store store("rediss://" + server.tls_address(), with_ca);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; t++)
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 30; i++) {
        EXPECT_EQ(store.put(t * 1000 + i, 50'000), 1);
        EXPECT_EQ(store.get(t * 1000 + i, 50'000), 1);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

// ---- Clusters -----------------------------------------------------------------------------------

TEST_F(RedisTls, AClusterOfServersWithTls) {
  certificates().make("named", {.names = "DNS:kv.example"});
  Cluster cluster(files("named"));
  const std::string address = "rediss://" + cluster[0].tls_address();
  EXPECT_NE(open_with(address, with_ca).find("IP address mismatch"), std::string::npos)
      << pkv_redis_last_error();
  Store store(address, [&](pkv_redis_config& config) {
    with_ca(config);
    config.tls_server_name = "kv.example";
  });
  Batch in, out;
  for (uint64_t i = 0; i < 300; i++) in.add(i, 1000), out.room(i, 1000);
  ASSERT_EQ(store.put(in), 300);
  EXPECT_EQ(store.get(out), 300);
  for (uint64_t i = 0; i < 300; i++) EXPECT_TRUE(out.value(i) == bytes(1000, i));
  for (size_t i = 0; i < cluster.size(); i++) EXPECT_GT(std::stoi(cluster[i].ask({"DBSIZE"})), 50);
}

// One server of the cluster shows another server's certificate. Its keys are lost, and are not sent
// to it.
TEST_F(RedisTls, AServerOfAClusterThatIsSomebodyElse) {
  Cluster cluster(files());
  certificates().make("other", {.signed_by = "other-ca"});
  ASSERT_EQ(cluster[1].ask({"CONFIG", "SET", "tls-cert-file", certificates().certificate("other"),
                            "tls-key-file", certificates().key("other")}),
            "OK");
  Store store("rediss://" + cluster[0].tls_address(), with_ca);
  Batch in;
  for (uint64_t i = 0; i < 300; i++) in.add(i, 1000);
  const int64_t stored = store.put(in);
  EXPECT_GT(stored, 150);
  EXPECT_LT(stored, 250);
  EXPECT_EQ(cluster[1].ask({"DBSIZE"}), "0");
}

TEST_F(RedisTls, UsersWithRights) {
  const Server server({}, files());
  ASSERT_EQ(server.ask({"ACL", "SETUSER", "limited", "on", ">p w", "~pagedkv:*", "+ping", "+strlen",
                        "+getrange", "+del"}),
            "OK");
  const std::string url = "rediss://limited:p%20w@" + server.tls_address();
  EXPECT_NE(open_with(url, with_ca).find("SET was refused: NOPERM"), std::string::npos)
      << pkv_redis_last_error();
  ASSERT_EQ(server.ask({"ACL", "SETUSER", "limited", "+set"}), "OK");
  EXPECT_EQ(open_with(url, with_ca), "");
}

}  // namespace
}  // namespace redis_test::tls_test
