// A secret string of any length, such as a password. Its memory is wiped before it is freed.
#pragma once

#include <string.h>

#include <cassert>
#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>

namespace pkv::redis {

// The string never moves to other memory, as a std::string does when it grows, so no copy of it
// stays behind.
class SecretText {
 public:
  SecretText() = default;
  // Makes an empty string with room for `capacity` bytes.
  explicit SecretText(size_t capacity) : text_(new char[capacity]), capacity_(capacity) {}
  explicit SecretText(std::string_view text) : SecretText(text.size()) {
    for (const char byte : text) append(byte);
  }
  ~SecretText() { wipe(); }
  SecretText(SecretText&& other) noexcept { swap(other); }
  SecretText& operator=(SecretText&& other) noexcept {
    swap(other);
    return *this;
  }

  void append(char byte) {
    assert(size_ < capacity_);
    text_[size_++] = byte;
  }
  std::string_view view() const { return {text_.get(), size_}; }
  bool empty() const { return size_ == 0; }

 private:
  void swap(SecretText& other) noexcept {
    std::swap(text_, other.text_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }
  void wipe() {
    // The compiler may drop a memset() of memory that is freed next, but not explicit_bzero().
    if (text_ != nullptr) explicit_bzero(text_.get(), capacity_);
  }

  std::unique_ptr<char[]> text_;
  size_t size_ = 0, capacity_ = 0;
};

}  // namespace pkv::redis
