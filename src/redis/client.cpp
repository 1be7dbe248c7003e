#include "redis/client.h"

#include <algorithm>
#include <cerrno>

#include "base/status.h"

namespace pkv::redis {

namespace {

constexpr size_t most_servers = 1024;
constexpr size_t most_commands = 4096;  // at once
constexpr int most_redirections = 4;
constexpr size_t slots_reply_bytes = 16 << 20;
constexpr size_t no_item = SIZE_MAX;

bool make_ready(Connection& connection, const Settings& settings) {
  Connection* const only = &connection;
  if (connection.start() == Connection::State::fresh) greet({&only, 1}, settings);
  return connection.ready();
}

}  // namespace

Client::Client(const Settings& settings) : settings_(settings) {
  for (const Address& address : settings.servers) server(address);
}

// NULL where there are too many, which is no cluster's doing.
Connection* Client::server(const Address& address) {
  for (const auto& known : servers_)
    if (known->address() == address) return known.get();
  if (servers_.size() >= most_servers) return nullptr;
  return servers_.emplace_back(std::make_unique<Connection>(address)).get();
}

// ---- Which server has which keys --------------------------------------------------------------------------------------

bool Client::learn_from(Connection& connection) {
  if (!make_ready(connection, settings_)) return false;
  Exchange question(connection);
  question.commands.command({"CLUSTER", "SLOTS"});
  question.reply_bytes = slots_reply_bytes;
  std::optional<std::vector<SlotRange>> ranges;
  exchange({&question, 1}, Clock::now() + settings_.connect_timeout,
           [&](const Exchange&, size_t, const redisReply& reply) { ranges = parse_slots(reply, connection.address()); });
  if (question.failed) return false;
  if (!ranges) {
    connection.fail(EPROTO, "its answer to CLUSTER SLOTS is none");
    return false;
  }
  by_slot_.fill(ranges->empty() ? &connection : nullptr);
  for (const SlotRange& range : *ranges) {
    Connection* const master = server(range.master);
    for (size_t slot = range.first; slot <= range.last; slot++) by_slot_[slot] = master;
  }
  forget_servers();
  return true;
}

// Those that left the cluster. What the caller named stays, with its pauses.
void Client::forget_servers() {
  std::erase_if(servers_, [&](const auto& server) {
    return std::find(by_slot_.begin(), by_slot_.end(), server.get()) == by_slot_.end() &&
           std::find(settings_.servers.begin(), settings_.servers.end(), server->address()) == settings_.servers.end();
  });
}

// Asks one server after the other; NULL when one has answered, else the last that did not.
Connection* Client::learn() {
  for (size_t i = 0; i < servers_.size(); i++) {
    if (!learn_from(*servers_[i])) continue;
    known_ = true;
    return nullptr;
  }
  return servers_.back().get();
}

void Client::connect() {
  if (const Connection* failed = learn())
    fail(PKV_IO, "%s: %.160s (errno %d)", failed->address().text().c_str(), failed->reason().c_str(), failed->error());
}

// ---- Batches ----------------------------------------------------------------------------------------------------------

int64_t Client::run(Operation& operation) {
  if (operation.size() == 0) return 0;
  if (!known_) {
    if (const Connection* failed = learn()) return -failed->error();
  }
  Tally tally;
  std::vector<Request> requests;
  size_t bytes = 0;
  for (size_t item = 0; item < operation.size(); item++) {
    const size_t more = operation.bytes_sent(item) + operation.bytes_back(item);
    if (!requests.empty() && (requests.size() == most_commands || bytes + more > settings_.pipeline_bytes)) {
      run_requests(operation, std::move(requests), tally);
      requests.clear();
      bytes = 0;
    }
    requests.push_back({item, by_slot_[slot_of(operation.key(item))], false});
    bytes += more;
  }
  run_requests(operation, std::move(requests), tally);
  return tally.counted > 0 || tally.answered ? tally.counted : -tally.error;
}

// One exchange per server that can be reached.
std::vector<Exchange> Client::prepare(const Operation& operation, const std::vector<Request>& requests, Tally& tally) {
  std::vector<Connection*> wanted, fresh;
  for (const Request& request : requests)
    if (std::find(wanted.begin(), wanted.end(), request.to) == wanted.end()) wanted.push_back(request.to);
  std::erase(wanted, nullptr);
  for (Connection* connection : wanted)
    if (connection->start() == Connection::State::fresh) fresh.push_back(connection);
  greet(fresh, settings_);

  std::vector<Exchange> exchanges;
  exchanges.reserve(wanted.size());
  for (Connection* connection : wanted) {
    if (connection->ready()) {
      exchanges.emplace_back(*connection);
    } else {
      tally.error = connection->error();
    }
  }
  for (const Request& request : requests) {
    const auto to = std::find_if(exchanges.begin(), exchanges.end(), [&](const Exchange& e) { return &e.connection == request.to; });
    if (to == exchanges.end()) {
      known_ = false;
      continue;
    }
    if (request.asking) {
      to->commands.command({"ASKING"});
      to->items.push_back(no_item);
    }
    operation.ask(request.item, to->commands);
    to->items.push_back(request.item);
    to->reply_bytes += operation.bytes_back(request.item);
  }
  return exchanges;
}

void Client::run_requests(Operation& operation, std::vector<Request> requests, Tally& tally) {
  for (int attempt = 0; attempt <= most_redirections && !requests.empty(); attempt++) {
    std::vector<Exchange> exchanges = prepare(operation, requests, tally);
    requests.clear();
    exchange(exchanges, Clock::now() + settings_.command_timeout, [&](const Exchange& from, size_t command, const redisReply& reply) {
      const size_t item = from.items[command];
      if (item == no_item) return;
      if (const auto redirection = parse_redirection(reply, from.connection.address())) {
        Connection* const to = server(redirection->to);
        requests.push_back({item, to, redirection->ask});
        if (redirection->ask) return;
        by_slot_[redirection->slot] = to;
        known_ = false;
      } else if (operation.take(item, reply)) {
        tally.counted++;
      }
    });
    for (Exchange& each : exchanges) {
      if (each.failed) {
        tally.error = each.connection.error();
        known_ = false;
      } else {
        tally.answered = true;
        each.connection.worked();
      }
    }
  }
}

}  // namespace pkv::redis
