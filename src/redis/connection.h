// A connection to one server. It breaks at the first thing that goes wrong and comes back by itself, after a pause that grows from one
// failure to the next.
#pragma once

#include <hiredis.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "redis/settings.h"

namespace pkv::redis {

using Clock = std::chrono::steady_clock;

struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, FreeReply>;

class Connection {
 public:
  explicit Connection(Address address);

  const Address& address() const { return address_; }
  int descriptor() const { return context_->fd; }

  enum class State { down, fresh, ready };
  // Ready where commands can be sent. Else begins to connect, unless it is too early after a failure; a fresh connection wants a greeting.
  State start();
  bool ready() const { return context_ != nullptr; }
  // It answered what it was asked for.
  void worked() { failures_ = 0; }

  // Replies that are on their way. A connection that still expects some when it is used next is not used.
  void expect(size_t replies) { expected_ += replies; }
  // Takes in what has arrived, as many bytes as a call of recv(); 0 or an errno.
  int receive(size_t* bytes);
  // The next complete reply, or none yet. *error: 0 or an errno.
  Reply next(int* error);
  // Is there more than was asked for?
  bool has_more() const { return context_->reader->len != context_->reader->pos; }

  // Breaks the connection and begins the pause.
  void fail(int error, const char* reason);
  // Of the last failure.
  int error() const { return error_; }
  const std::string& reason() const { return reason_; }

 private:
  struct FreeContext {
    void operator()(redisContext* context) const { redisFree(context); }
  };
  bool open();
  bool still_quiet() const;

  const Address address_;
  std::unique_ptr<redisContext, FreeContext> context_;
  redisReplyObjectFunctions functions_;
  std::vector<char> buffer_;
  size_t expected_ = 0;

  unsigned failures_ = 0;  // in a row
  Clock::time_point retry_at_{};
  int error_ = 0;
  std::string reason_;
};

}  // namespace pkv::redis
