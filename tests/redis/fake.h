// A server that sends whatever a test wants, for the replies that no real server gives.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <list>
#include <string>
#include <thread>
#include <vector>

namespace redis_test {

using Command = std::vector<std::string>;

struct Answer {
  std::string bytes;
  // Closes the connection afterwards.
  bool end = false;
  // The time between one byte and the next.
  unsigned drip_ms = 0;
};

class FakeServer {
 public:
  using Script = std::function<Answer(const Command&)>;

  // It answers PING, CLUSTER SLOTS and the question for the user's rights like a server without
  // cluster. If `greets` is false, the script answers them, too.
  explicit FakeServer(Script script, bool greets = true)
      : script_(std::move(script)), greets_(greets) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        listen(listener_, 16) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      std::abort();
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~FakeServer() {
    stop_ = true;
    acceptor_.join();
    for (std::thread& thread : connections_) thread.join();
    close(listener_);
  }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  // Returns a reply to CLUSTER SLOTS that gives all slots to this server.
  std::string map() const {
    return "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:" + std::to_string(port_) +
           "\r\n";
  }
  // Sends an answer once half a command of at least so many bytes has arrived, and reads nothing
  // more then.
  void answer_early(size_t bytes, std::string answer) {
    early_answer_ = std::move(answer);
    early_bytes_ = bytes;
  }
  int accepted() const { return accepted_; }

 private:
  bool readable(int descriptor) const {
    pollfd state{descriptor, POLLIN, 0};
    while (!stop_)
      if (poll(&state, 1, 10) > 0) return true;
    return false;
  }
  void wait_for_end(int descriptor) const {
    pollfd state{descriptor, POLLRDHUP, 0};
    while (!stop_ && poll(&state, 1, 10) == 0) continue;
  }
  void accept_all() {
    while (readable(listener_)) {
      const int descriptor = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (descriptor < 0) continue;
      accepted_++;
      connections_.emplace_back([this, descriptor] {
        serve(descriptor);
        close(descriptor);
      });
    }
  }
  void serve(int descriptor) {
    std::string input;
    while (true) {
      Command command;
      while (!take_command(input, command)) {
        char bytes[65536];
        if (!readable(descriptor)) return;
        const ssize_t got = recv(descriptor, bytes, sizeof bytes, 0);
        if (got <= 0) return;
        input.append(bytes, static_cast<size_t>(got));
        if (early_bytes_ > 0 && input.size() >= early_bytes_) {
          early_bytes_ = 0;
          say(descriptor, {early_answer_});
          wait_for_end(descriptor);
          return;
        }
      }
      if (!say(descriptor, answer(command))) return;
    }
  }
  Answer answer(const Command& command) const {
    if (greets_ && command[0] == "PING") return {"+PONG\r\n"};
    if (greets_ && command[0] == "CLUSTER")
      return {"-ERR This instance has cluster support disabled\r\n"};
    if (greets_ && command.size() > 1 && command[1].ends_with(":rights")) return {"$-1\r\n"};
    return script_(command);
  }
  bool say(int descriptor, const Answer& answer) const {
    const size_t step = answer.drip_ms > 0 ? 1 : answer.bytes.size();
    for (size_t at = 0; at < answer.bytes.size() && !stop_;) {
      const ssize_t sent = send(descriptor, answer.bytes.data() + at,
                                std::min(step, answer.bytes.size() - at), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      at += static_cast<size_t>(sent);
      if (answer.drip_ms > 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(answer.drip_ms));
    }
    return !answer.end;
  }
  // Takes the first complete command out of what has come in.
  static bool take_command(std::string& input, Command& command) {
    size_t at = 0;
    const auto number = [&](char sign, size_t& value) {
      const size_t end = input.find("\r\n", at);
      if (end == std::string::npos || input[at] != sign) return false;
      value = std::stoul(input.substr(at + 1, end - at - 1));
      at = end + 2;
      return true;
    };
    size_t arguments = 0;
    if (!number('*', arguments)) return false;
    command.clear();
    for (size_t i = 0; i < arguments; i++) {
      size_t size = 0;
      if (!number('$', size) || input.size() < at + size + 2) return false;
      command.push_back(input.substr(at, size));
      at += size + 2;
    }
    input.erase(0, at);
    return true;
  }

  const Script script_;
  const bool greets_;
  int listener_ = -1, port_ = 0;
  std::string early_answer_;
  std::atomic<size_t> early_bytes_ = 0;
  std::atomic<bool> stop_ = false;
  std::atomic<int> accepted_ = 0;
  std::list<std::thread> connections_;
  std::thread acceptor_;
};

}  // namespace redis_test
