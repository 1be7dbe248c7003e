// One server or all servers of a cluster: cuts batches into pipelines, sends every key to its
// server and follows the keys that move. Used by one thread at a time.
//
// Credentials go to the servers that the caller configured, and to those that CLUSTER SLOTS of one
// of these names. Nothing else that a server says leads anywhere.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "redis/exchange.h"
#include "redis/slots.h"

namespace pkv::redis {

// What is done with each item of a batch.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual size_t size() const = 0;
  virtual std::string_view key(size_t item) const = 0;
  // Bytes of values that go to the server and that come back.
  virtual size_t bytes_sent(size_t item) const = 0;
  virtual size_t bytes_back(size_t item) const = 0;
  // Adds one command.
  virtual void ask(size_t item, Pipeline& commands) const = 0;
  // Takes its reply; true where it counts. Errors do not.
  virtual bool take(size_t item, const redisReply& reply) = 0;
};

class Client {
 public:
  explicit Client(const Settings& settings);

  // Connects, and asks whether the user has a right to the commands; throws an IO error where no
  // server answers, or not.
  void connect();
  // How many items count, or a negative errno where no server that was asked answered.
  int64_t run(Operation& operation);

 private:
  struct Request {
    size_t item;
    Connection* to;
    bool asking;  // the key is on its way there
  };
  struct Redirected {
    size_t item;
    Redirection where;
  };
  struct Tally {
    int64_t counted = 0;
    bool answered = false;
    int error = 0;  // of a server that could not be reached
  };

  Connection* find(const Address& address) const;
  Connection* add(const Address& address);
  void take_map(Connection& from, const std::vector<SlotRange>& ranges);
  bool learn_from(Connection& connection);
  const Connection* learn();
  void check_rights(Connection& connection);
  void run_requests(Operation& operation, std::vector<Request> requests, Tally& tally);
  std::vector<Exchange> prepare(const Operation& operation, const std::vector<Request>& requests,
                                Tally& tally);
  void tell(std::vector<Exchange>& exchanges, Tally& tally);
  std::vector<Request> follow(const std::vector<Redirected>& redirected);

  const Settings& settings_;
  std::map<Address, std::unique_ptr<Connection>> servers_;  // whom credentials may be sent to
  std::array<Connection*, slot_count> by_slot_{};
  bool known_ = false;       // by_slot_ is what a server says
  bool is_cluster_ = false;  // that server belongs to a cluster
};

}  // namespace pkv::redis
