// A connection to one server. It breaks at the first thing that goes wrong and comes back by
// itself, after a pause that grows from one failure to the next.
#pragma once

#include <hiredis.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "redis/pipeline.h"
#include "redis/settings.h"

namespace pkv::redis {

using Clock = std::chrono::steady_clock;

struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, FreeReply>;

class Connection {
 public:
  // `tls` is NULL where the server is reached without.
  Connection(Address address, const TlsContext* tls);

  const Address& address() const { return address_; }
  int descriptor() const { return context_->fd; }

  enum class State { down, fresh, ready };
  // Ready where commands can be sent. Else it begins to connect, unless it is too early after a
  // failure; a fresh connection wants a greeting.
  State start();
  bool ready() const { return context_ != nullptr; }
  // It answered what it was asked for.
  void worked() { failures_ = 0; }

  // Replies that are on their way, and how many elements of arrays one of them may have. A
  // connection that still expects some replies when it is used next is not used.
  void expect(size_t replies, size_t elements);

  // What poll() has to wait for before move_on() or receive() can do more.
  short events(bool has_unsent) const;
  // Goes on with the TLS handshake; 0 or an errno. Nothing is sent before it is_secured().
  int secure() { return tls_ ? tls_->handshake() : 0; }
  bool is_secured() const { return !tls_ || tls_->ready(); }
  // Sends as much as the server takes now; 0 or an errno.
  int send(Pipeline& commands);
  // Takes in what has arrived; 0 or an errno. There may be more of it where *again is set.
  int receive(size_t* bytes, bool* again);
  // The next complete reply, or none yet. *error: 0 or an errno. `budget` more bytes may come; a
  // reply that says that it is longer is an error at once.
  Reply next(size_t budget, int* error);
  // Is there more than was asked for?
  bool has_more() const { return context_->reader->len != context_->reader->pos; }

  // Breaks the connection and begins the pause.
  void fail(int error, const char* reason);
  // The words for an errno that secure(), send() or receive() returned.
  const char* words_for(int error) const;
  // Of the last failure.
  int error() const { return error_; }
  const std::string& reason() const { return reason_; }

  // What a reply takes besides a value, which is a line, be it an error's.
  static constexpr size_t max_line_bytes = 4096;

 private:
  struct FreeContext {
    void operator()(redisContext* context) const { redisFree(context); }
  };
  // How large the arrays of a reply may be; hiredis calls it before it takes memory for one.
  struct ArrayLimit {
    redisReplyObjectFunctions* functions;
    size_t elements, left;
    bool exceeded;
  };
  template <class Count>
  static void* create_array(const redisReadTask* task, Count count);

  bool open();
  void limit_arrays();
  bool still_quiet();
  bool is_plausible(size_t budget) const;

  const Address address_;
  const TlsContext* const tls_context_;
  std::unique_ptr<redisContext, FreeContext> context_;
  std::optional<Tls> tls_;
  redisReplyObjectFunctions functions_;
  ArrayLimit limit_{};
  std::vector<char> buffer_;
  size_t expected_ = 0;

  unsigned failures_ = 0;  // in a row
  Clock::time_point retry_at_{};
  int error_ = 0;
  std::string reason_;
};

}  // namespace pkv::redis
