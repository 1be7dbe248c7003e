// Real servers on loopback ports, in directories of their own. They end with their object, or with
// this process.
#pragma once

#include <hiredis.h>
#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace redis_test {

// Only a test that hangs takes this long. Test machines are sometimes slow, so a test waits for
// events, and no shorter time may end it.
constexpr std::chrono::seconds hang_limit{120};

// Returns true if there is a redis-server or a valkey-server to run.
bool have_server();

// Returns true if that server has TLS.
bool have_tls_server();

// Returns true if this machine has the loopback address of IPv6.
bool have_ipv6();

// The certificate files of a server with TLS.
struct TlsFiles {
  std::string certificate, key, ca;
  // Asks clients for a certificate of the CA.
  bool asks_clients = false;
};

class Server {
 public:
  explicit Server(std::vector<std::string> options = {},
                  std::optional<TlsFiles> tls = std::nullopt);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  // A server that has TLS listens on both ports.
  int tls_port() const { return tls_port_; }
  std::string tls_address() const { return "127.0.0.1:" + std::to_string(tls_port_); }

  // Sends a command and returns its reply as text: elements of arrays separated by spaces, "(nil)",
  // or the error.
  std::string ask(const std::vector<std::string>& arguments) const;
  // The same, with a password.
  std::string ask_as(const std::string& password, const std::vector<std::string>& arguments) const;
  // Sends a command and returns the elements of the array that it is answered by, or nothing if it
  // is answered by anything else.
  std::vector<std::string> list(const std::vector<std::string>& arguments) const;

  void signal(int number) const { kill(process_, number); }
  // Ends the server as a power cut would.
  void stop();
  // Starts it again on the same port.
  void start();

 private:
  bool try_start();
  void send(const std::vector<std::string>& arguments,
            const std::function<void(const redisReply&)>& handle,
            const std::string& password = "") const;

  const std::vector<std::string> options_;
  const std::optional<TlsFiles> tls_;
  const std::filesystem::path directory_;
  int port_ = 0, tls_port_ = 0;
  pid_t process_ = -1;
};

// Three servers that have a third of the slots each.
class Cluster {
 public:
  // With TLS, the servers also use it among each other.
  explicit Cluster(const std::optional<TlsFiles>& tls = std::nullopt);
  Server& operator[](size_t i) { return *servers_[i]; }
  size_t size() const { return servers_.size(); }
  std::string id(size_t i) { return servers_[i]->ask({"CLUSTER", "MYID"}); }
  // Returns the server that claims a slot.
  size_t owner(size_t slot) const { return slot * servers_.size() / 16384; }
  // Waits until all slots are served and all servers agree on their owners and epochs. A server
  // that moves a slot before it knows the newest epoch can lose the slot and its keys.
  void wait_until_ok();

 private:
  std::vector<std::unique_ptr<Server>> servers_;
};

// Returns a loopback port on which nothing listens.
int free_port();

}  // namespace redis_test
