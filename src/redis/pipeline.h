// Commands for a server, as they go over the wire. Values stay where the caller has them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace pkv::redis {

class Pipeline {
 public:
  // Long arguments are not copied: they must live until everything is sent.
  void command(std::initializer_list<std::string_view> arguments);

  size_t commands() const { return commands_; }
  bool sent() const { return next_ == pieces_.size(); }
  // Sends as much as the socket takes now. 0, or an errno.
  int send(int descriptor);

 private:
  struct Piece {
    const char* data;  // NULL: in text_
    size_t offset, size;
  };
  void add_text(std::string_view text);
  void add_size(char sign, size_t size);

  std::string text_;
  std::vector<Piece> pieces_;
  size_t commands_ = 0;
  size_t next_ = 0, done_ = 0;  // the piece to send, and how much of it is sent
};

}  // namespace pkv::redis
