// Writes little-endian numbers one after another into memory, and reads them back with every length
// checked. The tables of files and the hashed bytes of block keys are made with these.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/status.h"

namespace pkv::file {

static_assert(std::endian::native == std::endian::little,
              "numbers are copied as they lie in memory");

class ByteWriter {
 public:
  // Appends numbers, or structs and arrays of numbers, each with as many bytes as its type has.
  template <class... Values>
  void put(const Values&... values) {
    static_assert((std::has_unique_object_representations_v<Values> && ...), "there is padding");
    (append(&values, sizeof values), ...);
  }
  // Appends the elements of a vector, a span or a string.
  template <class List>
  void put_all(const List& list) {
    append(std::data(list), std::size(list) * sizeof *std::data(list));
  }
  // Appends the number of elements, then the elements.
  template <class Count, class List>
  void put_list(const List& list) {
    put(static_cast<Count>(std::size(list)));
    put_all(list);
  }
  const std::vector<unsigned char>& bytes() const { return bytes_; }
  std::vector<unsigned char> take() { return std::move(bytes_); }

 private:
  void append(const void* from, size_t size) {
    const size_t at = bytes_.size();
    bytes_.resize(at + size);
    if (size > 0) std::memcpy(bytes_.data() + at, from, size);
  }

  std::vector<unsigned char> bytes_;
};

// Every read throws CORRUPT if the bytes end before it.
class ByteReader {
 public:
  explicit ByteReader(std::span<const unsigned char> bytes) : rest_(bytes) {}
  std::span<const unsigned char> rest() const { return rest_; }

  // Reads what put() wrote.
  template <class... Values>
  void read(Values&... values) {
    (std::memcpy(&values, take(sizeof values), sizeof values), ...);
  }
  template <class Number>
  Number get() {
    Number number;
    read(number);
    return number;
  }
  // Reads this many elements into a vector or a string.
  template <class List>
  void read_all(List& list, uint64_t count) {
    check_count(count, sizeof *list.data());
    list.resize(static_cast<size_t>(count));
    const size_t bytes = list.size() * sizeof *list.data();
    if (bytes > 0) std::memcpy(list.data(), take(bytes), bytes);
  }
  // Reads how many entries follow. Throws CORRUPT if that many entries of at least min_bytes_each
  // bytes cannot follow, so a caller may reserve memory for them.
  size_t get_count(size_t min_bytes_each) {
    const uint32_t count = get<uint32_t>();
    check_count(count, min_bytes_each);
    return count;
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
