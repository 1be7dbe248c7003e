// The header of a file is followed by its tag, then comes the body in pieces, each with its tag
// behind it. Without a key a tag is a checksum of the bytes and of the tag before it. With one,
// pieces are encrypted, each with its number and whether it is the last. Either way pieces of two
// files, or in another order, do not fit together: see FORMAT.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/file/cipher.h"

namespace pkv::file {

inline constexpr size_t piece_bytes =
    size_t{256} << 10;  // small enough to stay in a cache between two of the steps it goes through

// XXH3-128 of bytes and, by its seed, of the tag before.
Tag checksum(const Tag& before, std::span<const unsigned char> bytes) noexcept;

// Where in its file a piece is.
struct Place {
  uint64_t number;
  bool last;
  Tag before;  // the tag before it
};

// What protects one file.
class Sealer {
 public:
  // Without a key there are checksums. Throws UNSUPPORTED.
  Sealer(std::span<const unsigned char> key, std::span<const unsigned char> header);
  bool encrypts() const { return !key_.empty(); }
  // Of the header. With a key, only who has it makes the same one.
  const Tag& header_tag() const { return header_tag_; }
  bool check_header(const Tag& tag) const;

  // With a key the bytes are encrypted where they are. Throws bad_alloc.
  Tag seal(const Place& place, std::span<unsigned char> bytes) const;
  // The other way round. False: this is not what was sealed there. Throws bad_alloc.
  bool open(const Place& place, std::span<unsigned char> bytes, const Tag& tag) const;

 private:
  Secret key_;
  Tag header_tag_;
};

// Bytes of a body with its tags. Throws OVERFLOW.
uint64_t tagged_bytes(uint64_t body);

}  // namespace pkv::file
