#include "redis/connection.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace pkv::redis {

namespace {

using namespace std::chrono_literals;

constexpr auto first_pause = 100ms, longest_pause = 10'000ms;
constexpr size_t receive_bytes = 64 << 10;
// The largest array that is asked for: CLUSTER SLOTS. What announces more is not believed, so that no memory is taken for it.
constexpr auto most_elements = 16384;

// hiredis 0.14 counts elements with int, 1.x with size_t.
template <class Count>
void* create_array(const redisReadTask* task, Count count) {
  if (count > Count{most_elements}) return nullptr;
  return static_cast<const redisReplyObjectFunctions*>(task->privdata)->createArray(task, count);
}

}  // namespace

Connection::Connection(Address address) : address_(std::move(address)), functions_(), buffer_(receive_bytes) {}

void Connection::fail(int error, const char* reason) {
  context_.reset();
  expected_ = 0;
  const auto pause = std::min<Clock::duration>(first_pause * (1u << std::min(failures_, 10u)), longest_pause);
  failures_++;
  retry_at_ = Clock::now() + pause;
  error_ = error;
  reason_ = reason;
}

// A server that restarted, or closes idle connections, has ended this one meanwhile: that is no failure.
bool Connection::still_quiet() const {
  pollfd state{context_->fd, POLLIN, 0};
  return expected_ == 0 && poll(&state, 1, 0) == 0;
}

Connection::State Connection::start() {
  if (context_ != nullptr && still_quiet()) return State::ready;
  context_.reset();
  expected_ = 0;
  if (Clock::now() < retry_at_) {
    error_ = ENOTCONN;
    return State::down;
  }
  return open() ? State::fresh : State::down;
}

bool Connection::open() {
  // It resolves names, which has no time-out; connecting goes on in the background.
  context_.reset(redisConnectNonBlock(address_.host.c_str(), address_.port));
  if (context_ == nullptr) {
    fail(ENOMEM, "no memory for a connection");
    return false;
  }
  if (context_->err != 0) {
    const int error = context_->err == REDIS_ERR_IO && errno != 0 ? errno : EHOSTUNREACH;
    fail(error, std::string(context_->errstr).c_str());
    return false;
  }
  fcntl(context_->fd, F_SETFD, FD_CLOEXEC);
  functions_ = *context_->reader->fn;
  functions_.createArray = create_array;
  context_->reader->privdata = context_->reader->fn;  // the functions as they were
  context_->reader->fn = &functions_;
  return true;
}

int Connection::receive(size_t* bytes) {
  *bytes = 0;
  const ssize_t result = recv(context_->fd, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
  if (result == 0) return ECONNRESET;
  if (result < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : errno;
  *bytes = static_cast<size_t>(result);
  return redisReaderFeed(context_->reader, buffer_.data(), *bytes) == REDIS_OK ? 0 : ENOMEM;
}

Reply Connection::next(int* error) {
  void* reply = nullptr;
  *error = redisReaderGetReply(context_->reader, &reply) == REDIS_OK ? 0 : EPROTO;
  if (reply != nullptr) expected_--;
  return Reply(static_cast<redisReply*>(reply));
}

}  // namespace pkv::redis
