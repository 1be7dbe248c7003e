// A server that sends any bytes that a test needs, for replies that no real server gives.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "listener.h"

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
      : script_(std::move(script)),
        greets_(greets),
        listener_([this](int connection) { serve(connection); }) {}

  std::string address() const { return listener_.address(); }
  // Returns a reply to CLUSTER SLOTS that gives all slots to this server.
  std::string map() const {
    return "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:" +
           std::to_string(listener_.port()) + "\r\n";
  }
  // Sends an answer once half a command of at least `bytes` has arrived, and reads nothing
  // more then.
  void answer_early(size_t bytes, std::string answer) {
    early_answer_ = std::move(answer);
    early_bytes_ = bytes;
  }
  int accepted() const { return listener_.accepted(); }

 private:
  bool readable(int descriptor) const {
    pollfd state{descriptor, POLLIN, 0};
    while (!listener_.stopping())
      if (poll(&state, 1, 10) > 0) return true;
    return false;
  }
  void wait_for_end(int descriptor) const {
    pollfd state{descriptor, POLLRDHUP, 0};
    while (!listener_.stopping() && poll(&state, 1, 10) == 0) continue;
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
    for (size_t at = 0; at < answer.bytes.size() && !listener_.stopping();) {
      const ssize_t sent = send(descriptor, answer.bytes.data() + at,
                                std::min(step, answer.bytes.size() - at), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      at += static_cast<size_t>(sent);
      if (answer.drip_ms > 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(answer.drip_ms));
    }
    return !answer.end;
  }
  // Removes the first complete command from the received bytes.
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
  std::string early_answer_;
  std::atomic<size_t> early_bytes_ = 0;
  Listener listener_;
};

}  // namespace redis_test
