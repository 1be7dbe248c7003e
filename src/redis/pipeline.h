// Commands for a server, as they go over the wire. Values stay where the caller has them.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace pkv::redis {

class Pipeline {
 public:
  // Sends some bytes of `parts` and says in *taken how many. 0, or an errno.
  using Writer = std::function<int(iovec* parts, size_t count, size_t* taken)>;

  // Arguments of more than `max_copied` bytes are not copied: they must live until everything is
  // sent.
  void command(std::initializer_list<std::string_view> arguments, size_t max_copied = 4096);

  size_t commands() const { return ends_.size(); }
  bool sent() const { return next_ == pieces_.size(); }
  // How many commands are sent to their last byte.
  size_t commands_sent() const { return commands_sent_; }
  // Sends as much as `write` takes now. 0, or an errno.
  int send(const Writer& write);

 private:
  struct Piece {
    const char* data;  // NULL: in text_
    size_t offset, size;
  };
  void add_text(std::string_view text);
  void add_size(char sign, size_t size);
  void advance(size_t taken);

  std::string text_;
  std::vector<Piece> pieces_;
  std::vector<uint64_t> ends_;  // of each command: the bytes up to its end
  uint64_t bytes_ = 0, bytes_sent_ = 0;
  size_t commands_sent_ = 0;
  size_t next_ = 0, done_ = 0;  // the piece to send, and how much of it is sent
};

}  // namespace pkv::redis
