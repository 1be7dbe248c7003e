// Commands go out and replies come in, of several servers at once, until a deadline.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "redis/connection.h"
#include "redis/pipeline.h"

namespace pkv::redis {

// What one server is asked.
struct Exchange {
  explicit Exchange(Connection& to) : connection(to) {}

  Connection& connection;
  Pipeline commands{};
  std::vector<size_t> items{};  // for whoever takes the replies: what each command is about
  size_t reply_bytes = 0;       // of values that may come back; whoever sends much more is cut off
  size_t reply_elements = 16;   // of arrays in one reply
  size_t replies = 0;
  bool failed = false;
  std::string refusal{};  // why the server is not used although it answers
};

using TakeReply = std::function<void(Exchange& exchange, size_t command, const redisReply& reply)>;

// Every connection must be ready or fresh. When it returns, each exchange has sent all its commands
// and has all its replies, or its connection has failed.
void exchange(std::span<Exchange> exchanges, Clock::time_point deadline, const TakeReply& take);

// Ends the exchange and its connection.
void give_up(Exchange& of, int error, const char* reason);

// Makes connections ready, all at once; those that are not ready at the deadline are down.
void greet(std::span<Connection* const> connections, const Settings& settings,
           Clock::time_point deadline);

}  // namespace pkv::redis
