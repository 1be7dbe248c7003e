// The poll() loop that drives all exchanges, and the misbehaviour of servers that it refuses.
#include "redis/exchange.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "base/status.h"
#include "redis/refusals.h"

namespace pkv::redis {

namespace {

bool has_all_replies(const Exchange& exchange) {
  return exchange.replies == exchange.commands.commands();
}

bool is_complete(const Exchange& exchange) {
  return exchange.commands.all_sent() && has_all_replies(exchange);
}

const char* timeout_reason(const Exchange& exchange) {
  return exchange.connection.is_secured() ? "no answer in time" : "no TLS handshake in time";
}

void abandon(Exchange& exchange, int error) {
  abandon(exchange, error, exchange.connection.describe(error));
}

void handle_replies(Exchange& from, const HandleReply& handle) {
  while (!from.failed && !has_all_replies(from)) {
    int error = 0;
    const Reply reply = from.connection.next(from.reply_bytes, &error);
    if (error == EPROTO) {
      abandon(from, error, "bytes that break the protocol, or more than were asked for");
    } else if (error != 0) {
      abandon(from, error);
    }
    if (reply == nullptr) return;
    // A server must not answer before it has the whole command: it would take the rest of the
    // command for the next one.
    if (from.replies >= from.commands.commands_sent()) {
      abandon(from, EPROTO, "an answer to a command that is not sent yet");
      return;
    }
    handle(from, from.replies++, *reply);
  }
}

void receive(Exchange& from, const HandleReply& handle) {
  for (bool again = true; again && !from.failed;) {
    size_t bytes = 0;
    if (const int error = from.connection.receive(&bytes, &again); error != 0) {
      // A server may end the connection after its last answer.
      if (!is_complete(from)) abandon(from, error);
      return;
    }
    if (bytes > from.reply_bytes) {
      abandon(from, EPROTO, "more bytes than were asked for");
      return;
    }
    from.reply_bytes -= bytes;
    handle_replies(from, handle);
    if (!from.failed && has_all_replies(from) && from.connection.has_more())
      abandon(from, EPROTO, "an answer without a command");
  }
}

// Does as much of the handshake, sending and receiving as is possible now.
void advance(Exchange& exchange, const HandleReply& handle) {
  Connection& connection = exchange.connection;
  if (!connection.is_secured()) {
    if (const int error = connection.secure(); error != 0) return abandon(exchange, error);
    if (!connection.is_secured()) return;
  }
  if (!exchange.commands.all_sent()) {
    if (const int error = connection.send(exchange.commands); error != 0)
      return abandon(exchange, error);
  }
  receive(exchange, handle);
}

}  // namespace

void abandon(Exchange& exchange, int error, const char* reason) {
  exchange.failed = true;
  exchange.connection.fail(error, reason);
}

void run_exchanges(std::span<Exchange> exchanges, Clock::time_point deadline,
                   const HandleReply& handle) {
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
      if (each.failed || is_complete(each)) continue;
      const short events = each.connection.events(!each.commands.all_sent());
      waiting.push_back({each.connection.descriptor(), events, 0});
      open.push_back(&each);
    }
    if (open.empty()) return;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) {
      for (Exchange* each : open) abandon(*each, ETIMEDOUT, timeout_reason(*each));
      return;
    }
    if (poll(waiting.data(), waiting.size(), static_cast<int>(left)) < 0 && errno != EINTR) {
      const int error = errno;
      for (Exchange* each : open) abandon(*each, error, "poll() failed");
      return;
    }
    for (size_t i = 0; i < open.size(); i++)
      if (waiting[i].revents != 0) advance(*open[i], handle);
  }
}

namespace {

constexpr const char* auth = "AUTH";
constexpr const char* select_database = "SELECT";
constexpr const char* ping = "PING";

// Adds the commands that authenticate and select the database, and returns their names. The PING at
// the end ensures that the server answers even if it is asked nothing else: the system accepts
// connections to a stopped server, too. Secrets are sent from where they are stored, without a
// copy.
std::vector<const char*> add_greeting(Pipeline& commands, const Settings& settings,
                                      std::string_view database) {
  std::vector<const char*> added;
  if (!settings.user.empty()) {
    commands.add({auth, settings.user.view(), settings.password.view()}, 0);
    added.push_back(auth);
  } else if (!settings.password.empty()) {
    commands.add({auth, settings.password.view()}, 0);
    added.push_back(auth);
  }
  if (settings.database != 0) {
    commands.add({select_database, database});
    added.push_back(select_database);
  }
  commands.add({ping});
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
  run_exchanges(
      greetings, deadline, [&](Exchange& greeting, size_t command, const redisReply& reply) {
        if (reply.type == REDIS_REPLY_STATUS || !greeting.refusal.empty()) return;
        greeting.refusal =
            is_error(reply)
                ? describe_refusal(sent[command], text_of(reply))
                : std::string(sent[command]).append(" got an answer that is not a status");
      });
  for (Exchange& greeting : greetings)
    if (!greeting.failed && !greeting.refusal.empty())
      abandon(greeting, EACCES, greeting.refusal.c_str());
}

}  // namespace pkv::redis
