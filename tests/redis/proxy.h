// Stands between a client and a server of this machine, and passes on as much as a test wants.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <list>
#include <string>
#include <thread>

namespace redis_test {

class Proxy {
 public:
  explicit Proxy(int server_port) : server_port_(server_port) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        listen(listener_, 16) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      std::abort();
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~Proxy() {
    stop_ = true;
    acceptor_.join();
    for (std::thread& thread : connections_) thread.join();
    close(listener_);
  }
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  // Passes on so many of the server's bytes, counted from now on. Nothing more comes after them.
  void pass(uint64_t bytes) { left_ = bytes; }
  // Sends so many bytes at once.
  void cut(size_t bytes) { step_ = bytes; }
  uint64_t passed() const { return passed_; }

 private:
  static sockaddr_in loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    return address;
  }
  void accept_all() {
    pollfd state{listener_, POLLIN, 0};
    while (!stop_) {
      if (poll(&state, 1, 10) <= 0) continue;
      const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const sockaddr_in address = loopback(server_port_);
      if (connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        std::abort();
      connections_.emplace_back([this, client, server] {
        while (!stop_ && move(client, server)) continue;
        close(client);
        close(server);
      });
    }
  }
  bool move(int client, int server) {
    pollfd states[] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
    // What is held back stays in the server's connection.
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
  int listener_ = -1, port_ = 0;
  std::atomic<bool> stop_ = false;
  std::atomic<uint64_t> left_ = UINT64_MAX, step_ = 65536, passed_ = 0;
  std::list<std::thread> connections_;
  std::thread acceptor_;
};

}  // namespace redis_test
