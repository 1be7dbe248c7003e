// The header of a file is followed by its tag, then comes the body in pieces, each with its tag behind it. A tag is of the bytes and of the tag before
// it, so that pieces of two files, or in another order, do not fit together.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace pkv {

inline constexpr size_t piece_bytes = size_t{256} << 10;  // small enough to stay in a cache between two of the steps it goes through
inline constexpr size_t tag_bytes = 16;

using Tag = std::array<unsigned char, tag_bytes>;

// A checksum (XXH3-128), or with a key an authentication code (BLAKE2b-128).
class Tagger {
 public:
  explicit Tagger(std::span<const unsigned char> key);  // throws UNSUPPORTED
  ~Tagger();
  Tagger(const Tagger&) = default;
  Tagger& operator=(const Tagger&) = default;
  const Tag& last() const { return last_; }
  Tag next(std::span<const unsigned char> bytes);
  bool check(std::span<const unsigned char> bytes, const unsigned char* tag);
  // The same for bytes that follow any tag: pieces may be checked in any order.
  bool check_after(const Tag& before, std::span<const unsigned char> bytes, const Tag& tag) const;

 private:
  std::array<unsigned char, 64> key_{};
  size_t key_bytes_;
  Tag last_{};
};

// Bytes of a body with its tags. Throws OVERFLOW.
uint64_t tagged_bytes(uint64_t body);

}  // namespace pkv
