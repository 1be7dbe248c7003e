// Writes little-endian numbers one after another into memory, and reads them back with every length
// checked. The tables of files and the hashed bytes of block keys are made with these.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace pkv::file {

static_assert(std::endian::native == std::endian::little,
              "numbers are copied as they lie in memory");

class ByteWriter {
 public:
  template <class Number>
  void put(Number number) {
    put_all(std::span<const Number>(&number, 1));
  }
  template <class Number>
  void put_all(std::span<const Number> numbers) {
    const size_t at = bytes_.size();
    bytes_.resize(at + numbers.size_bytes());
    if (!numbers.empty()) std::memcpy(bytes_.data() + at, numbers.data(), numbers.size_bytes());
  }
  std::span<const unsigned char> bytes() const { return bytes_; }

 private:
  std::vector<unsigned char> bytes_;
};

// Every read throws CORRUPT if the bytes end before it.
class ByteReader {
 public:
  explicit ByteReader(std::span<const unsigned char> bytes) : rest_(bytes) {}
  size_t left() const { return rest_.size(); }

  template <class Number>
  Number get() {
    Number number;
    std::memcpy(&number, take(sizeof number), sizeof number);
    return number;
  }
  template <class Number>
  std::vector<Number> get_all(uint64_t count) {
    check_count(count, sizeof(Number));
    std::vector<Number> numbers(static_cast<size_t>(count));
    const size_t bytes = numbers.size() * sizeof(Number);
    if (bytes > 0) std::memcpy(numbers.data(), take(bytes), bytes);
    return numbers;
  }
  // Reads how many entries follow. Throws CORRUPT if that many entries of at least min_bytes_each
  // bytes cannot follow, so a caller may reserve memory for them.
  template <class Number>
  size_t get_count(size_t min_bytes_each) {
    const Number count = get<Number>();
    check_count(count, min_bytes_each);
    return static_cast<size_t>(count);
  }

 private:
  void check_count(uint64_t count, size_t bytes_each) const {
    if (count > rest_.size() / bytes_each)
      fail(PKV_CORRUPT, "the tables of the file give %llu entries of %zu bytes where %zu are left",
           llu(count), bytes_each, rest_.size());
  }
  const unsigned char* take(size_t n) {
    if (n > rest_.size()) fail(PKV_CORRUPT, "the tables of the file end in the middle of an entry");
    const unsigned char* const at = rest_.data();
    rest_ = rest_.subspan(n);
    return at;
  }

  std::span<const unsigned char> rest_;
};

}  // namespace pkv::file
