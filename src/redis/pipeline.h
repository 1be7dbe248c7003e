// Commands for a server in the wire format (RESP). Large values are not copied: they are sent from
// the caller's memory.
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
  // Sends some bytes of `parts` and sets *written to their number. Returns 0 or an errno.
  using Writer = std::function<int(iovec* parts, size_t count, size_t* written)>;

  // Adds a command. Arguments longer than `max_copied` bytes are not copied, so they must live
  // until everything is sent.
  void add(std::initializer_list<std::string_view> arguments, size_t max_copied = 4096);

  size_t commands() const { return ends_.size(); }
  // Whether all bytes were sent.
  bool all_sent() const { return next_ == pieces_.size(); }
  // The number of commands that were sent completely.
  size_t commands_sent() const { return commands_sent_; }
  // Sends as much as `write` accepts now. Returns 0 or an errno.
  int send(const Writer& write);

 private:
  struct Fragment {
    const char* data;  // NULL for bytes in text_, at the offset
    size_t offset, size;
  };
  void add_text(std::string_view text);
  void add_size(char sign, size_t size);
  void advance(size_t written);

  std::string text_;
  std::vector<Fragment> pieces_;
  std::vector<uint64_t> ends_;  // for each command the number of bytes up to its end
  uint64_t bytes_ = 0, bytes_sent_ = 0;
  size_t commands_sent_ = 0;
  size_t next_ = 0;       // the piece to send next
  size_t next_sent_ = 0;  // the bytes of it that were sent
};

}  // namespace pkv::redis
