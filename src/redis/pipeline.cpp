// How commands are built from copied text and uncopied values, and sent in parts.
#include "redis/pipeline.h"

namespace pkv::redis {

void Pipeline::add_text(std::string_view text) {
  if (pieces_.empty() || pieces_.back().data != nullptr)
    pieces_.push_back({nullptr, text_.size(), 0});
  text_ += text;
  pieces_.back().size += text.size();
  bytes_ += text.size();
}

void Pipeline::add_size(char sign, size_t size) {
  add_text({&sign, 1});
  add_text(std::to_string(size));
  add_text("\r\n");
}

void Pipeline::add(std::initializer_list<std::string_view> arguments, size_t max_copied) {
  add_size('*', arguments.size());
  for (const std::string_view argument : arguments) {
    add_size('$', argument.size());
    if (argument.size() <= max_copied) {
      add_text(argument);
    } else {
      pieces_.push_back({argument.data(), 0, argument.size()});
      bytes_ += argument.size();
    }
    add_text("\r\n");
  }
  ends_.push_back(bytes_);
}

void Pipeline::advance(size_t written) {
  bytes_sent_ += written;
  while (commands_sent_ < commands() && ends_[commands_sent_] <= bytes_sent_) commands_sent_++;
  next_sent_ += written;
  while (!all_sent() && next_sent_ >= pieces_[next_].size) next_sent_ -= pieces_[next_++].size;
}

int Pipeline::send(const Writer& write) {
  constexpr size_t max_parts = 64;
  while (!all_sent()) {
    iovec parts[max_parts];
    size_t count = 0;
    for (; count < max_parts && next_ + count < pieces_.size(); count++) {
      const Fragment& piece = pieces_[next_ + count];
      const size_t skip = count == 0 ? next_sent_ : 0;
      const char* data = piece.data != nullptr ? piece.data : text_.data() + piece.offset;
      parts[count] = {const_cast<char*>(data) + skip, piece.size - skip};
    }
    size_t written = 0;
    const int error = write(parts, count, &written);
    if (error != 0 || written == 0) return error;
    advance(written);
  }
  return 0;
}

}  // namespace pkv::redis
