// A client of one server or of a cluster. It cuts batches into pipelines, sends each key to its
// server, and follows keys that a cluster moves. Only one thread at a time may use it.
//
// Credentials are sent only to the servers that the caller configured, and to those that one of
// them names in its reply to CLUSTER SLOTS. Redirections to any other server are not followed.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "redis/exchange.h"
#include "redis/hash_slots.h"

namespace pkv::redis {

// An operation of a store on a batch: the command for each item, and what the reply means.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual size_t size() const = 0;
  virtual const char* command() const = 0;
  virtual std::string_view key(size_t item) const = 0;
  // The bytes of keys and values sent for an item, and the bytes of its value that come back.
  virtual size_t request_bytes(size_t item) const = 0;
  virtual size_t reply_bytes(size_t item) const = 0;
  // Adds the item's command.
  virtual void add_command(size_t item, Pipeline& commands) const = 0;
  // Reads the item's reply. Returns whether the item counts in the result; an item with an error
  // does not.
  virtual bool handle_reply(size_t item, const redisReply& reply) = 0;
};

class Client {
 public:
  explicit Client(const Settings& settings);

  // Connects, and tries each command. Throws an IO error if no server answers, or if one of the
  // commands can never work: the user has no right to it, or the server does not know it.
  void connect();
  // Returns the number of items that count, or a negative errno if no server answered, or if all
  // answers refuse.
  int64_t run(Operation& operation);
  // If the last run() failed or counts too few, the last reason for it, "10.0.0.5:6379: SET was
  // refused: ..."; or empty.
  const std::string& failure() const { return failure_; }

 private:
  struct ItemRequest {
    size_t item;
    Connection* to;
    bool asking;  // the key is being moved there, so send ASKING first
  };
  struct RedirectedItem {
    size_t item;
    Redirection redirection;
  };
  struct Tally {
    int64_t counted = 0;
    bool answered = false;  // a server gave an answer that is no refusal
    int error = 0;          // the errno of a server that could not be reached, or that refused
  };

  Connection* find(const Address& address) const;
  Connection* add(const Address& address);
  void set_slot_owners(Connection& from, const std::vector<SlotRange>& ranges);
  bool learn_slots_from(Connection& connection);
  const Connection* learn_slots();
  void note_failure(const Connection& connection, std::string_view reason, int error);
  void try_commands(Connection& connection);
  void run_requests(Operation& operation, std::vector<ItemRequest> requests, Tally& tally);
  std::vector<Exchange> prepare_exchanges(const Operation& operation,
                                          const std::vector<ItemRequest>& requests, Tally& tally);
  void record_outcomes(std::vector<Exchange>& exchanges, Tally& tally);
  std::vector<ItemRequest> follow_redirections(const std::vector<RedirectedItem>& redirected);

  const Settings& settings_;
  // The servers to which credentials may be sent.
  std::map<Address, std::unique_ptr<Connection>> servers_;
  std::array<Connection*, slot_count> slot_owners_{};
  bool slots_known_ = false;  // whether slot_owners_ is the last word of a server
  bool is_cluster_ = false;   // whether that server belongs to a cluster
  std::string failure_;
  size_t asked_first_ = 0;  // the configured server that is asked for the slots next
};

}  // namespace pkv::redis
