#include "redis/exchange.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "base/status.h"

namespace pkv::redis {

namespace {

// What a reply takes besides a value: a line, be it an error's.
constexpr size_t line_bytes = 4096;

bool complete(const Exchange& of) { return of.replies == of.commands.commands(); }

void give_up(Exchange& of, int error, const char* reason) {
  of.failed = true;
  of.connection.fail(error, reason);
}

void receive(Exchange& from, const TakeReply& take) {
  size_t bytes = 0;
  if (const int error = from.connection.receive(&bytes); error != 0) {
    give_up(from, error, error == ECONNRESET ? "the server closed the connection" : errno_text(error));
    return;
  }
  if (bytes > from.reply_bytes) {
    give_up(from, EPROTO, "more bytes than were asked for");
    return;
  }
  from.reply_bytes -= bytes;
  while (!complete(from)) {
    int error = 0;
    const Reply reply = from.connection.next(&error);
    if (error != 0) give_up(from, error, "bytes that are not the protocol's");
    if (reply == nullptr) return;
    take(from, from.replies++, *reply);
  }
  if (from.connection.has_more()) give_up(from, EPROTO, "an answer that nobody asked for");
}

void move(Exchange& of, const TakeReply& take) {
  if (!of.commands.sent()) {
    if (const int error = of.commands.send(of.connection.descriptor()); error != 0) {
      give_up(of, error, errno_text(error));
      return;
    }
  }
  receive(of, take);
}

}  // namespace

void exchange(std::span<Exchange> exchanges, Clock::time_point deadline, const TakeReply& take) {
  for (Exchange& each : exchanges) {
    each.reply_bytes += each.commands.commands() * line_bytes;
    each.connection.expect(each.commands.commands());
  }
  std::vector<pollfd> waiting;
  std::vector<Exchange*> open;
  for (;;) {
    waiting.clear();
    open.clear();
    for (Exchange& each : exchanges) {
      if (each.failed || complete(each)) continue;
      const short events = each.commands.sent() ? POLLIN : POLLIN | POLLOUT;
      waiting.push_back({each.connection.descriptor(), events, 0});
      open.push_back(&each);
    }
    if (open.empty()) return;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) {
      for (Exchange* each : open) give_up(*each, ETIMEDOUT, "no answer in time");
      return;
    }
    if (poll(waiting.data(), waiting.size(), static_cast<int>(left)) < 0 && errno != EINTR) {
      const int error = errno;
      for (Exchange* each : open) give_up(*each, error, "poll() failed");
      return;
    }
    for (size_t i = 0; i < open.size(); i++)
      if (waiting[i].revents != 0) move(*open[i], take);
  }
}

// Says who we are. The PING is for servers that do not want to know: the connections of a stopped one are accepted all the same.
void greet(std::span<Connection* const> connections, const Settings& settings) {
  const std::string database = std::to_string(settings.database);
  std::vector<Exchange> greetings;
  for (Connection* connection : connections) {
    Exchange& greeting = greetings.emplace_back(*connection);
    if (!settings.user.empty()) {
      greeting.commands.command({"AUTH", settings.user, settings.password});
    } else if (!settings.password.empty()) {
      greeting.commands.command({"AUTH", settings.password});
    }
    if (settings.database != 0) greeting.commands.command({"SELECT", database});
    greeting.commands.command({"PING"});
  }
  exchange(greetings, Clock::now() + settings.connect_timeout, [](Exchange& greeting, size_t, const redisReply& reply) {
    if (reply.type == REDIS_REPLY_STATUS || !greeting.refusal.empty()) return;
    greeting.refusal.assign(reply.type == REDIS_REPLY_ERROR ? std::string_view(reply.str, std::min<size_t>(reply.len, 150)) : "not a status");
  });
  for (Exchange& greeting : greetings)
    if (!greeting.failed && !greeting.refusal.empty()) give_up(greeting, EACCES, greeting.refusal.c_str());
}

}  // namespace pkv::redis
