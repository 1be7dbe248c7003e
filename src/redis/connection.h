// A connection to one server. Any failure breaks it; it connects again at its next use, after a
// pause that grows with each failure in a row.
#pragma once

#include <hiredis.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "redis/pipeline.h"
#include "redis/reply.h"
#include "redis/settings.h"

namespace pkv::redis {

using Clock = std::chrono::steady_clock;

class Connection {
 public:
  // `tls` is NULL for a connection without TLS.
  Connection(Address address, const TlsContext* tls);

  const Address& address() const { return address_; }
  int descriptor() const { return context_->fd; }

  enum class State { down, fresh, ready };
  // Returns `ready` if commands can be sent. Otherwise it begins to connect and returns `fresh`:
  // call greet() first. Returns `down` if connecting fails, or if the pause after a failure is not
  // over.
  State start();
  bool ready() const { return context_ != nullptr; }
  // Records that the server answered everything, which resets the count of failures.
  void succeeded() { failures_ = 0; }

  // Announces replies, and how many elements the arrays of one reply may have. If replies are still
  // missing at the connection's next use, it is closed and opened anew.
  void expect(size_t replies, size_t elements);

  // What to poll() for before secure(), send() or receive() can do more.
  short events(bool has_unsent) const;
  // Continues the TLS handshake. Returns 0 or an errno. Nothing is sent before is_secured() is
  // true.
  int secure() { return tls_ ? tls_->handshake() : 0; }
  bool is_secured() const { return !tls_ || tls_->ready(); }
  // Sends as much as the server accepts now. Returns 0 or an errno.
  int send(Pipeline& commands);
  // Reads what has arrived. Returns 0 or an errno. If it sets *again, there may be more to read.
  int receive(size_t* bytes, bool* again);
  // Returns the next complete reply, or NULL if there is none yet, and sets *error to 0 or an
  // errno. At most `budget` more bytes may arrive: a reply that announces more is an error at once.
  Reply next(size_t budget, int* error);
  // Whether bytes of an incomplete reply have arrived.
  bool has_more() const { return context_->reader->len != context_->reader->pos; }

  // Breaks the connection and begins the pause.
  void fail(int error, const char* reason);
  // Describes an errno that secure(), send() or receive() returned.
  const char* describe(int error) const;
  // The last failure.
  int error() const { return error_; }
  const std::string& reason() const { return reason_; }

  // The longest line of a reply: a status, an error, or the header of a value.
  static constexpr size_t max_line_bytes = 4096;

 private:
  struct FreeContext {
    void operator()(redisContext* context) const { redisFree(context); }
  };
  // Limits the arrays of a reply: hiredis calls create_array() before it allocates an array.
  struct ArrayLimit {
    redisReplyObjectFunctions* functions;
    size_t elements, remaining;
    bool exceeded;
  };
  template <class Count>
  static void* create_array(const redisReadTask* task, Count count);

  bool open();
  void limit_arrays();
  bool is_reusable();
  bool is_plausible(size_t budget) const;

  const Address address_;
  const TlsContext* const tls_context_;
  std::unique_ptr<redisContext, FreeContext> context_;
  std::optional<Tls> tls_;
  redisReplyObjectFunctions functions_;
  ArrayLimit limit_{};
  std::vector<char> buffer_;
  size_t expected_ = 0;

  unsigned failures_ = 0;  // since the last success
  Clock::time_point retry_at_{};
  int error_ = 0;
  std::string reason_;
};

}  // namespace pkv::redis
