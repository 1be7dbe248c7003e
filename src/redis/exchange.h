// Sends commands to several servers at once and reads their replies, until a deadline.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "redis/connection.h"
#include "redis/pipeline.h"
#include "redis/reply.h"

namespace pkv::redis {

// The commands for one server, and its progress.
struct Exchange {
  explicit Exchange(Connection& to) : connection(to) {}

  Connection& connection;
  Pipeline commands{};
  std::vector<size_t> items{};  // the item that each command is about, for HandleReply
  size_t reply_bytes = 0;       // the server is cut off if more bytes of values come back
  size_t reply_elements = 16;   // how many elements the arrays in one reply may have
  size_t replies = 0;           // how many replies have arrived
  size_t refused = 0;           // how many items the server refused
  bool failed = false;
  std::string refusal{};  // why the server is not used although it answers
};

using HandleReply =
    std::function<void(Exchange& exchange, size_t command, const redisReply& reply)>;

// Sends the commands of all exchanges and passes each reply to `handle`. Every connection must be
// ready or fresh. On return, each exchange has sent all its commands and got all its replies, or
// its connection has failed.
void run_exchanges(std::span<Exchange> exchanges, Clock::time_point deadline,
                   const HandleReply& handle);

// Marks the exchange as failed and breaks its connection.
void abandon(Exchange& exchange, int error, const char* reason);

// Makes fresh connections ready, all at once: authenticates and selects a database. Connections
// that are not ready at the deadline are down.
void greet(std::span<Connection* const> connections, const Settings& settings,
           Clock::time_point deadline);

}  // namespace pkv::redis
