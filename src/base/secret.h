// Secret bytes: a caller's key, or one that was derived from it. They are wiped when they go.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>

namespace pkv {

// Overwrites memory that nobody reads any more; a plain memset would be left out by the compiler.
inline void wipe(void* bytes, size_t n) noexcept {
  std::memset(bytes, 0, n);
  __asm__ volatile("" : : "r"(bytes) : "memory");
}

// Up to 64 bytes, which lie in the object itself: nothing of them is left in memory that was given
// back.
class Secret {
 public:
  static constexpr size_t most = 64;

  Secret() = default;
  explicit Secret(std::span<const unsigned char> bytes) : size_(bytes.size()) {
    std::copy(bytes.begin(), bytes.end(), bytes_.begin());
  }
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret() { wipe(bytes_.data(), bytes_.size()); }

  bool empty() const { return size_ == 0; }
  std::span<const unsigned char> bytes() const { return {bytes_.data(), size_}; }
  // Room for `size` bytes, to be written.
  std::span<unsigned char> room(size_t size) {
    size_ = size;
    return {bytes_.data(), size};
  }

 private:
  std::array<unsigned char, most> bytes_{};
  size_t size_ = 0;
};

}  // namespace pkv
