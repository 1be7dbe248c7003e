#include "redis/exchange.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "base/status.h"
#include "redis/refusals.h"

namespace pkv::redis {

namespace {

// A server that answers before it has the whole command has lost its place, or tries to: what is
// left of the command would become the beginning of the next one.
bool complete(const Exchange& of) {
  return of.commands.sent() && of.replies == of.commands.commands();
}

const char* words_for_silence(const Exchange& of) {
  return of.connection.is_secured() ? "no answer in time" : "no TLS handshake in time";
}

bool all_arrived(const Exchange& of) { return of.replies == of.commands.commands(); }

void give_up(Exchange& of, int error) { give_up(of, error, of.connection.words_for(error)); }

void take_replies(Exchange& from, const TakeReply& take) {
  while (!from.failed && !all_arrived(from)) {
    int error = 0;
    const Reply reply = from.connection.next(from.reply_bytes, &error);
    if (error == EPROTO) {
      give_up(from, error, "bytes that are not the protocol's, or more than were asked for");
    } else if (error != 0) {
      give_up(from, error);
    }
    if (reply == nullptr) return;
    if (from.replies >= from.commands.commands_sent()) {
      give_up(from, EPROTO, "an answer to a command that is not sent yet");
      return;
    }
    take(from, from.replies++, *reply);
  }
}

void receive(Exchange& from, const TakeReply& take) {
  for (bool again = true; again && !from.failed;) {
    size_t bytes = 0;
    if (const int error = from.connection.receive(&bytes, &again); error != 0) {
      // A server may end the connection after its last answer.
      if (!complete(from)) give_up(from, error);
      return;
    }
    if (bytes > from.reply_bytes) {
      give_up(from, EPROTO, "more bytes than were asked for");
      return;
    }
    from.reply_bytes -= bytes;
    take_replies(from, take);
    if (!from.failed && all_arrived(from) && from.connection.has_more())
      give_up(from, EPROTO, "an answer that nobody asked for");
  }
}

void move(Exchange& of, const TakeReply& take) {
  if (!of.connection.is_secured()) {
    if (const int error = of.connection.secure(); error != 0) return give_up(of, error);
    if (!of.connection.is_secured()) return;
  }
  if (!of.commands.sent()) {
    if (const int error = of.connection.send(of.commands); error != 0) return give_up(of, error);
  }
  receive(of, take);
}

}  // namespace

void give_up(Exchange& of, int error, const char* reason) {
  of.failed = true;
  of.connection.fail(error, reason);
}

void exchange(std::span<Exchange> exchanges, Clock::time_point deadline, const TakeReply& take) {
  for (Exchange& each : exchanges) {
    each.reply_bytes += each.commands.commands() * Connection::max_line_bytes;
    each.connection.expect(each.commands.commands(), each.reply_elements);
  }
  std::vector<pollfd> waiting;
  std::vector<Exchange*> open;
  for (;;) {
    waiting.clear();
    open.clear();
    for (Exchange& each : exchanges) {
      if (each.failed || complete(each)) continue;
      const short events = each.connection.events(!each.commands.sent());
      waiting.push_back({each.connection.descriptor(), events, 0});
      open.push_back(&each);
    }
    if (open.empty()) return;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) {
      for (Exchange* each : open) give_up(*each, ETIMEDOUT, words_for_silence(*each));
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

namespace {

constexpr const char* auth = "AUTH";
constexpr const char* select_database = "SELECT";
constexpr const char* ping = "PING";

// Says who we are. The PING is for servers that do not want to know: the connections of a stopped
// one are accepted all the same. What is secret is sent from where it lies, without a copy.
std::vector<const char*> add_greeting(Pipeline& commands, const Settings& settings,
                                      std::string_view database) {
  std::vector<const char*> added;
  if (!settings.user.empty()) {
    commands.command({auth, settings.user.view(), settings.password.view()}, 0);
    added.push_back(auth);
  } else if (!settings.password.empty()) {
    commands.command({auth, settings.password.view()}, 0);
    added.push_back(auth);
  }
  if (settings.database != 0) {
    commands.command({select_database, database});
    added.push_back(select_database);
  }
  commands.command({ping});
  added.push_back(ping);
  return added;
}

}  // namespace

void greet(std::span<Connection* const> connections, const Settings& settings,
           Clock::time_point deadline) {
  const std::string database = std::to_string(settings.database);
  std::vector<const char*> sent;
  std::vector<Exchange> greetings;
  for (Connection* connection : connections) {
    Exchange& greeting = greetings.emplace_back(*connection);
    sent = add_greeting(greeting.commands, settings, database);
  }
  exchange(greetings, deadline, [&](Exchange& greeting, size_t command, const redisReply& reply) {
    if (reply.type == REDIS_REPLY_STATUS || !greeting.refusal.empty()) return;
    greeting.refusal =
        reply.type == REDIS_REPLY_ERROR
            ? describe_refusal(sent[command], {reply.str, reply.len})
            : std::string(sent[command]).append(" got an answer that is not a status");
  });
  for (Exchange& greeting : greetings)
    if (!greeting.failed && !greeting.refusal.empty())
      give_up(greeting, EACCES, greeting.refusal.c_str());
}

}  // namespace pkv::redis
