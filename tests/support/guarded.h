// A buffer between guards, filled with one byte. It shows what a call wrote, and where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

class Guarded {
 public:
  explicit Guarded(size_t size) : bytes_(size + 2 * guard, filler), size_(size) {}

  unsigned char* data() { return bytes_.data() + guard; }
  size_t size() const { return size_; }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data());
  }

  // Returns true if nothing from this offset on was written, and nothing before the buffer.
  bool untouched_from(size_t offset = 0) const {
    return filled(0, guard) && filled(guard + offset, bytes_.size());
  }
  void clear() { std::memset(bytes_.data(), filler, bytes_.size()); }

  static constexpr unsigned char filler = 0xAB;

 private:
  // Returns true if all bytes are the same.
  bool filled(size_t begin, size_t end) const {
    return begin >= end || (bytes_[begin] == filler &&
                            std::memcmp(&bytes_[begin], &bytes_[begin] + 1, end - begin - 1) == 0);
  }

  static constexpr size_t guard = 64;

  std::vector<unsigned char> bytes_;
  size_t size_;
};
