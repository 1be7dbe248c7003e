// How a connection is opened, read and closed, and which replies are refused.
#include "redis/connection.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace pkv::redis {

namespace {

using namespace std::chrono_literals;

constexpr auto min_pause = 100ms, max_pause = 10'000ms;
constexpr size_t receive_bytes = 64 << 10;
// The most deeply nested reply that we ask for is CLUSTER SLOTS with its metadata. Versions of
// hiredis after 0.14 have no limit and free nested arrays by recursion, which could exhaust the
// stack.
constexpr int max_depth = 6;

int send_plain(int descriptor, iovec* parts, size_t count, size_t* written) {
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  // hiredis itself calls write(), which raises SIGPIPE if the connection is broken.
  const ssize_t result = sendmsg(descriptor, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  *written = result > 0 ? static_cast<size_t>(result) : 0;
  if (result >= 0 || errno == EAGAIN || errno == EINTR) return 0;
  return errno;
}

}  // namespace

// ---- Limits of replies --------------------------------------------------------------------------

// A template, because hiredis 0.14 counts elements with int and 1.x with size_t.
template <class Count>
void* Connection::create_array(const redisReadTask* task, Count count) {
  ArrayLimit& limit = *static_cast<ArrayLimit*>(task->privdata);
  int depth = 0;
  for (const redisReadTask* above = task->parent; above != nullptr; above = above->parent) depth++;
  if (depth >= max_depth || static_cast<size_t>(count) > limit.remaining) {
    limit.exceeded = true;
    return nullptr;
  }
  limit.remaining -= static_cast<size_t>(count);
  return limit.functions->createArray(task, count);
}

void Connection::limit_arrays() {
  redisReader& reader = *context_->reader;
  functions_ = *reader.fn;
  functions_.createArray = create_array;
  limit_ = {reader.fn, 0, 0, false};
  reader.fn = &functions_;
  reader.privdata = &limit_;
}

void Connection::expect(size_t replies, size_t elements) {
  expected_ += replies;
  limit_.elements = limit_.remaining = elements;
}

// Looks at the beginning of an incomplete reply, and returns false if the reply will be too long.
// The first line is complete only if the reply is a value; it gives the value's length.
bool Connection::is_plausible(size_t budget) const {
  const redisReader& reader = *context_->reader;
  const std::string_view rest(reader.buf + reader.pos, reader.len - reader.pos);
  const size_t end = rest.substr(0, max_line_bytes).find("\r\n");
  if (end == std::string_view::npos) return rest.size() <= max_line_bytes;
  // Only the number is read here; hiredis checks the rest of the line.
  const size_t digits = rest.substr(0, end).find_first_of("0123456789");
  size_t announced = 0;
  if (digits != std::string_view::npos) {
    const auto [stop, error] = std::from_chars(rest.data() + digits, rest.data() + end, announced);
    if (error == std::errc::result_out_of_range) return false;
  }
  return announced <= rest.size() + budget;
}

// ---- Connecting ---------------------------------------------------------------------------------

Connection::Connection(Address address, const TlsContext* tls)
    : address_(std::move(address)), tls_context_(tls), functions_() {}

void Connection::fail(int error, const char* reason) {
  error_ = error;
  reason_ = reason;
  tls_.reset();
  context_.reset();
  expected_ = 0;
  const auto pause =
      std::min<Clock::duration>(min_pause * (1u << std::min(failures_, 10u)), max_pause);
  failures_++;
  retry_at_ = Clock::now() + pause;
}

const char* Connection::describe(int error) const {
  if (tls_ && tls_->reason()[0] != '\0') return tls_->reason();
  return error == ECONNRESET ? "the server closed the connection" : errno_text(error);
}

// Whether an open connection can be used again: no reply is missing, and nothing has arrived. A
// server that restarted or closes idle connections has ended it meanwhile, which is no failure.
bool Connection::is_reusable() {
  if (expected_ != 0) return false;
  pollfd state{context_->fd, POLLIN, 0};
  return poll(&state, 1, 0) == 0 || (tls_ && tls_->is_idle());
}

Connection::State Connection::start() {
  if (context_ != nullptr && is_reusable()) return State::ready;
  tls_.reset();
  context_.reset();
  expected_ = 0;
  if (Clock::now() < retry_at_) {
    error_ = ENOTCONN;
    return State::down;
  }
  return open() ? State::fresh : State::down;
}

namespace {

// Returns why a connection could not be opened. If the name has no address, or no socket can be
// made, hiredis gives a sentence but no errno.
int error_of(const redisContext& context) {
  const bool no_descriptors = errno == EMFILE || errno == ENFILE;
  if (no_descriptors || (context.err == REDIS_ERR_IO && errno != 0)) return errno;
  return EHOSTUNREACH;
}

}  // namespace

bool Connection::open() {
  errno = 0;  // error_of() looks at the errno that this call leaves
  // This resolves the name; only the system's resolver can time that out. Connecting continues in
  // the background.
  context_.reset(redisConnectNonBlock(address_.host.c_str(), address_.port));
  if (context_ == nullptr) {
    fail(ENOMEM, "no memory for a connection");
    return false;
  }
  if (context_->err != 0) {
    const int error = error_of(*context_);
    fail(error, std::string(context_->errstr).c_str());
    return false;
  }
  fcntl(context_->fd, F_SETFD, FD_CLOEXEC);
  limit_arrays();
  // The buffer is allocated here and not with the object, because a cluster may name a thousand
  // servers that are never used.
  buffer_.resize(receive_bytes);
  if (tls_context_ != nullptr) tls_.emplace(*tls_context_, address_.host, context_->fd);
  return true;
}

// ---- Bytes --------------------------------------------------------------------------------------

short Connection::events(bool has_unsent) const {
  if (tls_) return tls_->events(has_unsent);
  return has_unsent ? POLLIN | POLLOUT : POLLIN;
}

int Connection::send(Pipeline& commands) {
  return commands.send([this](iovec* parts, size_t count, size_t* written) {
    return tls_ ? tls_->write(parts, count, written)
                : send_plain(context_->fd, parts, count, written);
  });
}

int Connection::receive(size_t* bytes, bool* again) {
  *bytes = 0;
  *again = false;
  if (tls_) {
    if (const int error = tls_->read(buffer_.data(), buffer_.size(), bytes); error != 0)
      return error;
    *again = *bytes > 0;
  } else {
    const ssize_t result = recv(context_->fd, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (result == 0) return ECONNRESET;
    if (result < 0) return errno == EAGAIN || errno == EINTR ? 0 : errno;
    *bytes = static_cast<size_t>(result);
  }
  return redisReaderFeed(context_->reader, buffer_.data(), *bytes) == REDIS_OK ? 0 : ENOMEM;
}

Reply Connection::next(size_t budget, int* error) {
  void* reply = nullptr;
  redisReader* const reader = context_->reader;
  *error = 0;
  if (redisReaderGetReply(reader, &reply) != REDIS_OK) {
    *error = reader->err == REDIS_ERR_OOM && !limit_.exceeded ? ENOMEM : EPROTO;
  } else if (reply == nullptr && !is_plausible(budget)) {
    *error = EPROTO;
  }
  if (reply != nullptr) {
    expected_--;
    limit_.remaining = limit_.elements;
  }
  return Reply(static_cast<redisReply*>(reply));
}

}  // namespace pkv::redis
