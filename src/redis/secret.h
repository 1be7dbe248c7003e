// A text that must not outlive its use: its memory is wiped before it is given back.
#pragma once

#include <string.h>

#include <cassert>
#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>

namespace pkv::redis {

// It never moves to other memory by itself, so that no copy is left behind.
class Secret {
 public:
  Secret() = default;
  // An empty text with room for `capacity` bytes.
  explicit Secret(size_t capacity) : text_(new char[capacity]), capacity_(capacity) {}
  explicit Secret(std::string_view text) : Secret(text.size()) {
    for (const char byte : text) append(byte);
  }
  ~Secret() { wipe(); }
  Secret(Secret&& other) noexcept { swap(other); }
  Secret& operator=(Secret&& other) noexcept {
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
  void swap(Secret& other) noexcept {
    std::swap(text_, other.text_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }
  void wipe() {
    // The compiler may leave out a memset() of memory that is freed next, but not this.
    if (text_ != nullptr) explicit_bzero(text_.get(), capacity_);
  }

  std::unique_ptr<char[]> text_;
  size_t size_ = 0, capacity_ = 0;
};

}  // namespace pkv::redis
