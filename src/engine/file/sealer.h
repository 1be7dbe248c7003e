// Protects the header and the pieces of a file by tags: checksums without a key, encryption with
// one. A checksum also covers the tag before it. An encrypted piece is bound to the file, to its
// number and to whether it is the last one. So pieces of two files, or in another order, do not fit
// together: see FORMAT.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/file/cipher.h"

namespace pkv::file {

// Small enough that a piece stays in a CPU cache from one stage of reading or writing to the next.
inline constexpr size_t piece_bytes = size_t{256} << 10;

// Returns the XXH3-128 of bytes, seeded with the tag before them.
Tag checksum(const Tag& previous_tag, std::span<const unsigned char> bytes) noexcept;

// The place of a piece in its file.
struct PiecePosition {
  uint64_t number;
  bool last;
  Tag previous_tag;  // of the piece before it, or of the header
};

// Makes and checks the tags of one file, and encrypts and decrypts its pieces.
class Sealer {
 public:
  // Uses checksums if the key is empty. Throws UNSUPPORTED if there is a key and this build has no
  // ciphers.
  Sealer(std::span<const unsigned char> key, std::span<const unsigned char> header);
  bool encrypts() const { return !key_.empty(); }
  // Returns the tag of the header. If there is a key, the tag cannot be made without it.
  const Tag& header_tag() const { return header_tag_; }
  bool check_header(const Tag& tag) const;

  // Returns the tag of a piece, whose bytes are encrypted in place if there is a key. Throws
  // bad_alloc.
  Tag seal(const PiecePosition& position, std::span<unsigned char> bytes) const;
  // Checks a piece against its tag, and decrypts it in place if there is a key. Returns false if
  // these are not the bytes that were sealed for this position. Throws bad_alloc.
  bool open(const PiecePosition& position, std::span<unsigned char> bytes, const Tag& tag) const;

 private:
  Secret key_;
  Tag header_tag_;
};

}  // namespace pkv::file
