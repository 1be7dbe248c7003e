#include "redis/pipeline.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>

namespace pkv::redis {

namespace {
constexpr size_t short_argument = 4096;
}

void Pipeline::add_text(std::string_view text) {
  if (pieces_.empty() || pieces_.back().data != nullptr) pieces_.push_back({nullptr, text_.size(), 0});
  text_ += text;
  pieces_.back().size += text.size();
}

void Pipeline::add_size(char sign, size_t size) {
  add_text({&sign, 1});
  add_text(std::to_string(size));
  add_text("\r\n");
}

void Pipeline::command(std::initializer_list<std::string_view> arguments) {
  add_size('*', arguments.size());
  for (const std::string_view argument : arguments) {
    add_size('$', argument.size());
    if (argument.size() <= short_argument) {
      add_text(argument);
    } else {
      pieces_.push_back({argument.data(), 0, argument.size()});
    }
    add_text("\r\n");
  }
  commands_++;
}

int Pipeline::send(int descriptor) {
  constexpr size_t most = 64;
  while (!sent()) {
    iovec parts[most];
    size_t count = 0;
    for (; count < most && next_ + count < pieces_.size(); count++) {
      const Piece& piece = pieces_[next_ + count];
      const size_t skip = count == 0 ? done_ : 0;
      const char* data = piece.data != nullptr ? piece.data : text_.data() + piece.offset;
      parts[count] = {const_cast<char*>(data) + skip, piece.size - skip};
    }
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    // hiredis would write(): a connection that broke raises SIGPIPE there.
    const ssize_t result = sendmsg(descriptor, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (result < 0) {
      if (errno == EINTR) continue;
      return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : errno;
    }
    done_ += static_cast<size_t>(result);
    while (!sent() && done_ >= pieces_[next_].size) done_ -= pieces_[next_++].size;
  }
  return 0;
}

}  // namespace pkv::redis
