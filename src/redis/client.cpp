// Which server has which keys, and how a batch is sent to the servers.
#include "redis/client.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <set>

#include "base/status.h"
#include "redis/refusals.h"

namespace pkv::redis {

namespace {

constexpr size_t max_commands = 4096;  // sent before their replies are read
constexpr int max_redirections = 4;
// Twice what a cluster sends if each slot is a range of its own, with a master and two replicas.
constexpr size_t slots_reply_bytes = 8 << 20, slots_reply_elements = 512 << 10;
constexpr size_t hello_reply_elements = 1024;
constexpr size_t no_item = SIZE_MAX;

bool make_ready(Connection& connection, const Settings& settings, Clock::time_point deadline) {
  Connection* const only = &connection;
  if (connection.start() == Connection::State::fresh) greet({&only, 1}, settings, deadline);
  return connection.ready();
}

// Asks a server with HELLO, which every user may send, what it is: "standalone", "cluster" or
// "sentinel". The reply alternates names and values.
std::string mode_of(Connection& connection, Clock::time_point deadline) {
  Exchange question(connection);
  question.commands.add({"HELLO"});
  question.reply_elements = hello_reply_elements;
  std::string mode;
  run_exchanges({&question, 1}, deadline, [&](const Exchange&, size_t, const redisReply& reply) {
    for (size_t i = 0; i + 1 < reply.elements && !is_error(reply); i += 2) {
      const redisReply &name = *reply.element[i], &value = *reply.element[i + 1];
      if (name.type != REDIS_REPLY_STRING || value.type != REDIS_REPLY_STRING) continue;
      if (text_of(name) == "mode") mode = text_of(value);
    }
  });
  return mode;
}

}  // namespace

Client::Client(const Settings& settings) : settings_(settings) {
  for (const Address& address : settings.servers) add(address);
}

// Returns NULL for a server to which credentials must not be sent.
Connection* Client::find(const Address& address) const {
  const auto found = servers_.find(address);
  return found != servers_.end() ? found->second.get() : nullptr;
}

// Returns NULL if there are more servers than any cluster has.
Connection* Client::add(const Address& address) {
  if (Connection* const known = find(address)) return known;
  if (servers_.size() >= max_servers) return nullptr;
  auto made = std::make_unique<Connection>(address, settings_.tls.get());
  return servers_.emplace(address, std::move(made)).first->second.get();
}

// ---- Which server has which keys ----------------------------------------------------------------

// Sets the server of each slot. Forgets servers that left the cluster, except those that the caller
// configured: they keep their pauses after failures.
void Client::set_slot_owners(Connection& from, const std::vector<SlotRange>& ranges) {
  is_cluster_ = !ranges.empty();
  slot_owners_.fill(is_cluster_ ? nullptr : &from);
  for (const SlotRange& range : ranges)
    std::fill_n(slot_owners_.begin() + range.first, range.last - range.first + 1,
                add(range.master));
  std::set<const Connection*> used(slot_owners_.begin(), slot_owners_.end());
  for (const Address& address : settings_.servers) used.insert(find(address));
  std::erase_if(servers_, [&](const auto& server) { return !used.contains(server.second.get()); });
  slots_known_ = true;
}

bool Client::learn_slots_from(Connection& connection) {
  const auto deadline = Clock::now() + settings_.connect_timeout;
  if (!make_ready(connection, settings_, deadline)) return false;
  Exchange question(connection);
  question.commands.add({"CLUSTER", "SLOTS"});
  question.reply_bytes = slots_reply_bytes;
  question.reply_elements = slots_reply_elements;
  std::optional<std::vector<SlotRange>> ranges;
  bool knows_none = false;
  run_exchanges({&question, 1}, deadline, [&](Exchange& from, size_t, const redisReply& reply) {
    ranges = parse_slots(reply, connection.address());
    knows_none = !is_error(reply) && ranges && ranges->empty();
    if (is_error(reply) && is_missing_right(text_of(reply)))
      from.refusal = describe_refusal("CLUSTER SLOTS", text_of(reply));
  });
  // The right to CLUSTER SLOTS is needed only in a cluster.
  if (!question.failed && !question.refusal.empty() && mode_of(connection, deadline) == "cluster")
    abandon(question, EACCES, question.refusal.c_str());
  if (!question.failed && !ranges)
    abandon(question, EPROTO, "its answer to CLUSTER SLOTS is malformed");
  // A server that has just been added to a cluster, or that has lost its configuration.
  if (!question.failed && knows_none)
    abandon(question, EAGAIN, "it is in cluster mode, but knows no server of any slot");
  if (question.failed || !connection.ready()) return false;
  set_slot_owners(connection, *ranges);
  return true;
}

// Asks the configured servers for the slots one after the other, beginning after the one that
// answered last: a server that is cut off from its cluster never learns that another server's slots
// moved. Returns NULL if one answered, and otherwise the last connection that failed.
const Connection* Client::learn_slots() {
  const Connection* failed = nullptr;
  const size_t count = settings_.servers.size();
  for (size_t i = 0; i < count; i++) {
    const size_t asked = (asked_first_ + i) % count;
    Connection* const server = find(settings_.servers[asked]);
    if (learn_slots_from(*server)) {
      asked_first_ = (asked + 1) % count;
      return nullptr;
    }
    failed = server;
  }
  return failed;
}

// Sends each command once, so that what can never work is an error when the store is opened. What a
// server refuses for now, such as SET while it is a replica, is no error then. This changes nothing
// on the server, since no item has a key of this length. Any server of a cluster can answer,
// because servers check rights before they look up the slot of a key.
void Client::try_commands(Connection& connection) {
  const std::string key = settings_.prefix + "rights";
  constexpr const char* names[] = {"STRLEN", "GETRANGE", "DEL", "SET", "EXPIRE"};
  const auto deadline = Clock::now() + settings_.connect_timeout;
  Exchange question(connection);
  question.commands.add({"STRLEN", key});
  question.commands.add({"GETRANGE", key, "0", "0"});
  question.commands.add({"DEL", key});
  question.commands.add({"SET", key, "0", "XX"});
  if (settings_.ttl_seconds > 0) question.commands.add({"EXPIRE", key, "1"});
  run_exchanges({&question, 1}, deadline,
                [&](Exchange& from, size_t command, const redisReply& reply) {
                  if (!is_error(reply) || !is_final(text_of(reply)) || !from.refusal.empty())
                    return;
                  from.refusal = describe_refusal(names[command], text_of(reply));
                });
  if (question.failed || question.refusal.empty()) return;
  if (mode_of(connection, deadline) == "sentinel")
    question.refusal = "it is a Sentinel, which stores nothing: name the servers themselves";
  abandon(question, EACCES, question.refusal.c_str());
}

void Client::connect() {
  const Connection* failed = learn_slots();
  if (failed == nullptr) {
    const auto ready = [&](const Address& address) { return find(address)->ready(); };
    const auto found = std::find_if(settings_.servers.begin(), settings_.servers.end(), ready);
    try_commands(*find(*found));
    if (!find(*found)->ready()) failed = find(*found);
  }
  if (failed == nullptr) return;
  note_failure(*failed, failed->reason(), failed->error());
  fail(io_details(failed->error()), "%s", failure_.c_str());
}

// ---- Batches ------------------------------------------------------------------------------------

void Client::note_failure(const Connection& connection, std::string_view reason, int error) {
  char text[sizeof Error::text];
  std::snprintf(text, sizeof text, "%.60s: %.*s (errno %d)", connection.address().text().c_str(),
                static_cast<int>(std::min<size_t>(reason.size(), 160)), reason.data(), error);
  failure_ = text;
}

int64_t Client::run(Operation& operation) {
  failure_.clear();
  if (operation.size() == 0) return 0;
  if (!slots_known_) {
    // If no server answers, the last known slots of a cluster are used.
    if (const Connection* failed = learn_slots(); failed != nullptr && !is_cluster_) {
      note_failure(*failed, failed->reason(), failed->error());
      return -failed->error();
    }
  }
  Tally tally;
  std::vector<ItemRequest> requests;
  size_t bytes = 0;
  for (size_t item = 0; item < operation.size(); item++) {
    const size_t more = operation.request_bytes(item) + operation.reply_bytes(item);
    if (!requests.empty() &&
        (requests.size() == max_commands || bytes + more > settings_.max_pipeline_bytes)) {
      run_requests(operation, std::move(requests), tally);
      requests.clear();
      bytes = 0;
    }
    requests.push_back({item, slot_owners_[slot_of(operation.key(item))], false});
    bytes += more;
  }
  run_requests(operation, std::move(requests), tally);
  return tally.counted > 0 || tally.answered ? tally.counted : -tally.error;
}

// Makes one exchange, with its commands, for each server that can be reached.
std::vector<Exchange> Client::prepare_exchanges(const Operation& operation,
                                                const std::vector<ItemRequest>& requests,
                                                Tally& tally) {
  std::vector<Connection*> wanted, fresh;
  for (const ItemRequest& request : requests)
    if (std::find(wanted.begin(), wanted.end(), request.to) == wanted.end())
      wanted.push_back(request.to);
  std::erase(wanted, nullptr);
  for (Connection* connection : wanted)
    if (connection->start() == Connection::State::fresh) fresh.push_back(connection);
  greet(fresh, settings_, Clock::now() + settings_.connect_timeout);

  std::vector<Exchange> exchanges;
  exchanges.reserve(wanted.size());
  for (Connection* connection : wanted) {
    if (connection->ready()) {
      exchanges.emplace_back(*connection);
    } else {
      tally.error = connection->error();
      note_failure(*connection, connection->reason(), tally.error);
    }
  }
  for (const ItemRequest& request : requests) {
    const auto to = std::find_if(exchanges.begin(), exchanges.end(),
                                 [&](const Exchange& e) { return &e.connection == request.to; });
    if (to == exchanges.end()) {
      slots_known_ = false;
      continue;
    }
    if (request.asking) {
      to->commands.add({"ASKING"});
      to->items.push_back(no_item);
    }
    operation.add_command(request.item, to->commands);
    to->items.push_back(request.item);
    to->reply_bytes += operation.reply_bytes(request.item);
  }
  return exchanges;
}

void Client::record_outcomes(std::vector<Exchange>& exchanges, Tally& tally) {
  for (Exchange& each : exchanges) {
    if (each.failed) {
      tally.error = each.connection.error();
      note_failure(each.connection, each.connection.reason(), tally.error);
      slots_known_ = false;
    } else {
      const auto no_items = std::count(each.items.begin(), each.items.end(), no_item);
      if (each.refused + static_cast<size_t>(no_items) < each.items.size()) tally.answered = true;
      each.connection.succeeded();
    }
  }
}

// Returns requests for the items that were redirected. Redirections are followed only in a cluster
// and only to its own servers. A server that is not known yet may have joined the cluster or
// replaced another one, so the slots are asked for again.
std::vector<Client::ItemRequest> Client::follow_redirections(
    const std::vector<RedirectedItem>& redirected) {
  std::vector<ItemRequest> requests;
  if (!is_cluster_) return requests;
  const auto is_unknown = [&](const RedirectedItem& each) {
    return find(each.redirection.to) == nullptr;
  };
  if (std::any_of(redirected.begin(), redirected.end(), is_unknown)) learn_slots();
  for (const auto& [item, redirection] : redirected) {
    Connection* const to = find(redirection.to);
    if (to == nullptr || !redirection.ask) slots_known_ = false;
    if (to == nullptr || !is_cluster_) continue;
    requests.push_back({item, to, redirection.ask});
    if (!redirection.ask) slot_owners_[redirection.slot] = to;
  }
  return requests;
}

void Client::run_requests(Operation& operation, std::vector<ItemRequest> requests, Tally& tally) {
  auto deadline = Clock::now() + settings_.command_timeout;
  bool cluster_down = false;
  for (int attempt = 0; attempt <= max_redirections && !requests.empty(); attempt++) {
    const auto begin = Clock::now();
    std::vector<Exchange> exchanges = prepare_exchanges(operation, requests, tally);
    deadline += Clock::now() - begin;  // connecting has its own timeout
    std::vector<RedirectedItem> redirected;
    run_exchanges(
        exchanges, deadline, [&](Exchange& from, size_t command, const redisReply& reply) {
          const size_t item = from.items[command];
          if (item == no_item) return;
          cluster_down = cluster_down || (is_error(reply) && is_cluster_down(text_of(reply)));
          if (auto redirection = parse_redirection(reply, from.connection.address())) {
            redirected.push_back({item, std::move(*redirection)});
          } else if (!is_error(reply) || concerns_one_key(text_of(reply))) {
            tally.counted += operation.handle_reply(item, reply);
            return;
          } else {
            from.refused++;
            tally.error = errno_of_refusal(text_of(reply));
          }
          note_failure(from.connection, describe_refusal(operation.command(), text_of(reply)),
                       errno_of_refusal(text_of(reply)));
        });
    record_outcomes(exchanges, tally);
    requests = follow_redirections(redirected);
  }
  // A server that was cut off from the others, or has just started, may not know yet which server
  // took its slots. If the slots came from it, another server knows better.
  if (is_cluster_ && cluster_down) slots_known_ = false;
}

}  // namespace pkv::redis
