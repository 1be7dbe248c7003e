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
  size_t replies = 0;
  bool failed = false;
  std::string refusal{};  // of a greeting
};

using TakeReply = std::function<void(Exchange& exchange, size_t command, const redisReply& reply)>;

// Every connection must be ready or fresh. When it returns an exchange has all its replies, or its connection has failed.
void exchange(std::span<Exchange> exchanges, Clock::time_point deadline, const TakeReply& take);

// Makes connections ready, all at once within the time-out for connecting; those that are not ready then are down.
void greet(std::span<Connection* const> connections, const Settings& settings);

}  // namespace pkv::redis
