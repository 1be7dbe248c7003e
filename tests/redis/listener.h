// A loopback port, and a thread for each connection to it.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <list>
#include <string>
#include <thread>

namespace redis_test {

// Returns a loopback address. Port 0 is any.
inline sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

class Listener {
 public:
  // Calls `serve` for each connection, which is closed afterwards. `serve` should end soon after
  // stopping() returns true. The last member of an object is destroyed first, so members that
  // `serve` uses should come before the listener.
  explicit Listener(std::function<void(int connection)> serve) : serve_(std::move(serve)) {
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
  ~Listener() {
    stop_ = true;
    acceptor_.join();
    for (std::thread& thread : connections_) thread.join();
    close(listener_);
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  int accepted() const { return accepted_; }
  bool stopping() const { return stop_; }

 private:
  void accept_all() {
    pollfd state{listener_, POLLIN, 0};
    while (!stop_) {
      if (poll(&state, 1, 10) <= 0) continue;
      const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) continue;
      accepted_++;
      connections_.emplace_back([this, connection] {
        serve_(connection);
        close(connection);
      });
    }
  }

  const std::function<void(int)> serve_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> stop_ = false;
  std::atomic<int> accepted_ = 0;
  std::list<std::thread> connections_;
  std::thread acceptor_;
};

}  // namespace redis_test
