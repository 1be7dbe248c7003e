#include "redis/client.h"

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/status.h"
#include "redis/refusals.h"

namespace pkv::redis {

namespace {

constexpr size_t max_servers = 1024;
constexpr size_t max_commands = 4096;  // at once
constexpr int max_redirections = 4;
// Every slot a range of its own, with a master and two replicas that have names, would be half of
// this.
constexpr size_t slots_reply_bytes = 8 << 20, slots_reply_elements = 512 << 10;
constexpr size_t hello_reply_elements = 1024;
constexpr size_t no_item = SIZE_MAX;

std::string_view text_of(const redisReply& reply) { return {reply.str, reply.len}; }

bool is_error(const redisReply& reply) { return reply.type == REDIS_REPLY_ERROR; }

bool make_ready(Connection& connection, const Settings& settings, Clock::time_point deadline) {
  Connection* const only = &connection;
  if (connection.start() == Connection::State::fresh) greet({&only, 1}, settings, deadline);
  return connection.ready();
}

// HELLO is every user's right. Its answer is names and values in turn.
bool is_of_a_cluster(Connection& connection, Clock::time_point deadline) {
  Exchange question(connection);
  question.commands.command({"HELLO"});
  question.reply_elements = hello_reply_elements;
  bool found = false;
  exchange({&question, 1}, deadline, [&](const Exchange&, size_t, const redisReply& reply) {
    for (size_t i = 0; i + 1 < reply.elements && !is_error(reply); i += 2) {
      const redisReply &name = *reply.element[i], &value = *reply.element[i + 1];
      if (name.type != REDIS_REPLY_STRING || value.type != REDIS_REPLY_STRING) continue;
      found = found || (text_of(name) == "mode" && text_of(value) == "cluster");
    }
  });
  return found;
}

}  // namespace

Client::Client(const Settings& settings) : settings_(settings) {
  for (const Address& address : settings.servers) add(address);
}

// NULL where it is none that credentials may be sent to.
Connection* Client::find(const Address& address) const {
  const auto found = servers_.find(address);
  return found != servers_.end() ? found->second.get() : nullptr;
}

// NULL where there are too many, which is no cluster's doing.
Connection* Client::add(const Address& address) {
  if (Connection* const known = find(address)) return known;
  if (servers_.size() >= max_servers) return nullptr;
  auto made = std::make_unique<Connection>(address, settings_.tls.get());
  return servers_.emplace(address, std::move(made)).first->second.get();
}

// ---- Which server has which keys ----------------------------------------------------------------

// Servers that left the cluster are forgotten. Those that the caller named stay, with their pauses.
void Client::take_map(Connection& from, const std::vector<SlotRange>& ranges) {
  is_cluster_ = !ranges.empty();
  by_slot_.fill(is_cluster_ ? nullptr : &from);
  for (const SlotRange& range : ranges)
    std::fill_n(by_slot_.begin() + range.first, range.last - range.first + 1, add(range.master));
  std::set<const Connection*> used(by_slot_.begin(), by_slot_.end());
  for (const Address& address : settings_.servers) used.insert(find(address));
  std::erase_if(servers_, [&](const auto& server) { return !used.contains(server.second.get()); });
  known_ = true;
}

bool Client::learn_from(Connection& connection) {
  const auto deadline = Clock::now() + settings_.connect_timeout;
  if (!make_ready(connection, settings_, deadline)) return false;
  Exchange question(connection);
  question.commands.command({"CLUSTER", "SLOTS"});
  question.reply_bytes = slots_reply_bytes;
  question.reply_elements = slots_reply_elements;
  std::optional<std::vector<SlotRange>> ranges;
  exchange({&question, 1}, deadline, [&](Exchange& from, size_t, const redisReply& reply) {
    ranges = parse_slots(reply, connection.address());
    if (is_error(reply) && is_without_right(text_of(reply)))
      from.refusal = describe_refusal("CLUSTER SLOTS", text_of(reply));
  });
  // Without a cluster nobody needs that right.
  if (!question.failed && !question.refusal.empty() && is_of_a_cluster(connection, deadline))
    give_up(question, EACCES, question.refusal.c_str());
  if (!question.failed && !ranges) give_up(question, EPROTO, "its answer to CLUSTER SLOTS is none");
  if (question.failed || !connection.ready()) return false;
  take_map(connection, *ranges);
  return true;
}

// Asks one configured server after the other; NULL when one has answered, else the last that did
// not.
const Connection* Client::learn() {
  const Connection* failed = nullptr;
  for (const Address& address : settings_.servers) {
    failed = find(address);
    if (learn_from(*find(address))) return nullptr;
  }
  return failed;
}

// A user without a right to a command would else be noticed by nobody: what is refused is not
// counted. Nothing is changed, since no item's name has this length. The server asks for rights
// before it looks where a key is, so that any server of a cluster can tell.
void Client::check_rights(Connection& connection) {
  const std::string key = settings_.prefix + "rights";
  constexpr const char* names[] = {"STRLEN", "GETRANGE", "DEL", "SET"};
  Exchange question(connection);
  question.commands.command({"STRLEN", key});
  question.commands.command({"GETRANGE", key, "0", "0"});
  question.commands.command({"DEL", key});
  question.commands.command({"SET", key, "0", "XX"});
  exchange({&question, 1}, Clock::now() + settings_.connect_timeout,
           [&](Exchange& from, size_t command, const redisReply& reply) {
             if (!is_error(reply) || !is_without_right(text_of(reply)) || !from.refusal.empty())
               return;
             from.refusal = describe_refusal(names[command], text_of(reply));
           });
  if (!question.failed && !question.refusal.empty())
    give_up(question, EACCES, question.refusal.c_str());
}

void Client::connect() {
  const Connection* failed = learn();
  if (failed == nullptr) {
    const auto ready = [&](const Address& address) { return find(address)->ready(); };
    const auto found = std::find_if(settings_.servers.begin(), settings_.servers.end(), ready);
    check_rights(*find(*found));
    if (!find(*found)->ready()) failed = find(*found);
  }
  if (failed != nullptr)
    fail(PKV_IO, "%.60s: %.160s (errno %d)", failed->address().text().c_str(),
         failed->reason().c_str(), failed->error());
}

// ---- Batches ------------------------------------------------------------------------------------

int64_t Client::run(Operation& operation) {
  if (operation.size() == 0) return 0;
  if (!known_) {
    // What a cluster was like before is better than nothing.
    if (const Connection* failed = learn(); failed != nullptr && !is_cluster_)
      return -failed->error();
  }
  Tally tally;
  std::vector<Request> requests;
  size_t bytes = 0;
  for (size_t item = 0; item < operation.size(); item++) {
    const size_t more = operation.bytes_sent(item) + operation.bytes_back(item);
    if (!requests.empty() &&
        (requests.size() == max_commands || bytes + more > settings_.pipeline_bytes)) {
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
std::vector<Exchange> Client::prepare(const Operation& operation,
                                      const std::vector<Request>& requests, Tally& tally) {
  std::vector<Connection*> wanted, fresh;
  for (const Request& request : requests)
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
    }
  }
  for (const Request& request : requests) {
    const auto to = std::find_if(exchanges.begin(), exchanges.end(),
                                 [&](const Exchange& e) { return &e.connection == request.to; });
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

void Client::tell(std::vector<Exchange>& exchanges, Tally& tally) {
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

// Only a cluster redirects, and only to its own servers. One that is not known yet may have joined:
// a configured server knows.
std::vector<Client::Request> Client::follow(const std::vector<Redirected>& redirected) {
  std::vector<Request> requests;
  if (!is_cluster_) return requests;
  const auto is_unknown = [&](const Redirected& each) { return find(each.where.to) == nullptr; };
  if (std::any_of(redirected.begin(), redirected.end(), is_unknown)) learn();
  for (const auto& [item, where] : redirected) {
    Connection* const to = find(where.to);
    if (to == nullptr || !is_cluster_) continue;
    requests.push_back({item, to, where.ask});
    if (where.ask) continue;
    by_slot_[where.slot] = to;
    known_ = false;
  }
  return requests;
}

void Client::run_requests(Operation& operation, std::vector<Request> requests, Tally& tally) {
  auto deadline = Clock::now() + settings_.command_timeout;
  for (int attempt = 0; attempt <= max_redirections && !requests.empty(); attempt++) {
    const auto begin = Clock::now();
    std::vector<Exchange> exchanges = prepare(operation, requests, tally);
    deadline += Clock::now() - begin;  // connecting has a time-out of its own
    std::vector<Redirected> redirected;
    exchange(exchanges, deadline,
             [&](const Exchange& from, size_t command, const redisReply& reply) {
               const size_t item = from.items[command];
               if (item == no_item) return;
               if (auto redirection = parse_redirection(reply, from.connection.address())) {
                 redirected.push_back({item, std::move(*redirection)});
               } else if (operation.take(item, reply)) {
                 tally.counted++;
               }
             });
    tell(exchanges, tally);
    requests = follow(redirected);
  }
}

}  // namespace pkv::redis
