// Stands between a client and a server of this machine, and forwards as much as a test wants.
#pragma once

#include <algorithm>
#include <cstdint>

#include "listener.h"

namespace redis_test {

class Proxy {
 public:
  explicit Proxy(int server_port)
      : server_port_(server_port), listener_([this](int client) { serve(client); }) {}

  std::string address() const { return listener_.address(); }
  // Forwards the next `bytes` bytes of the server, and nothing after them.
  void pass(uint64_t bytes) { left_ = bytes; }
  // Sends `bytes` bytes at once.
  void cut(size_t bytes) { step_ = bytes; }
  uint64_t passed() const { return passed_; }

 private:
  void serve(int client) {
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = loopback(server_port_);
    if (connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      std::abort();
    while (!listener_.stopping() && move(client, server)) continue;
    close(server);
  }
  bool move(int client, int server) {
    pollfd states[] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
    // Bytes that are held back stay in the server's connection.
    if (left_ == 0) states[1].fd = -1;
    if (poll(states, 2, 10) <= 0) return true;
    char bytes[65536];
    if (states[0].revents != 0) {
      const ssize_t got = recv(client, bytes, sizeof bytes, 0);
      if (got <= 0 || !send_all(server, bytes, static_cast<size_t>(got))) return false;
    }
    if (states[1].fd >= 0 && states[1].revents != 0) {
      const ssize_t got = recv(server, bytes, std::min<uint64_t>({sizeof bytes, left_, step_}), 0);
      if (got <= 0) return false;
      // Bytes are counted first, because the client may be done with them before this thread goes
      // on.
      left_ -= static_cast<uint64_t>(got);
      passed_ += static_cast<uint64_t>(got);
      if (!send_all(client, bytes, static_cast<size_t>(got))) return false;
    }
    return true;
  }
  static bool send_all(int to, const char* bytes, size_t size) {
    for (size_t at = 0; at < size;) {
      const ssize_t sent = send(to, bytes + at, size - at, MSG_NOSIGNAL);
      if (sent <= 0) return false;
      at += static_cast<size_t>(sent);
    }
    return true;
  }

  const int server_port_;
  std::atomic<uint64_t> left_ = UINT64_MAX, step_ = 65536, passed_ = 0;
  Listener listener_;
};

}  // namespace redis_test
