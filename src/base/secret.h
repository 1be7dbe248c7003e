// Secret bytes, which are wiped when their object is destroyed: a caller's key, or a key that was
// derived from it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

namespace pkv {

// Wipes secret bytes, and what is left of them in vector registers and in the frames of functions
// that have returned.
void wipe(std::span<unsigned char> bytes) noexcept;

// The bytes lie in the object itself, so that no copy of them stays behind in freed memory.
class Secret {
 public:
  static constexpr size_t max_size = 64;

  Secret() = default;
  explicit Secret(std::span<const unsigned char> bytes) : size_(bytes.size()) {
    std::copy(bytes.begin(), bytes.end(), bytes_.begin());
  }
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret() { wipe(bytes_); }

  bool empty() const { return size_ == 0; }
  std::span<const unsigned char> bytes() const { return {bytes_.data(), size_}; }
  // Sets the size and returns the bytes, which the caller fills.
  std::span<unsigned char> resize(size_t size) {
    size_ = size;
    return {bytes_.data(), size};
  }

 private:
  std::array<unsigned char, max_size> bytes_{};
  size_t size_ = 0;
};

}  // namespace pkv
