// A header and a body of bytes in a file: the body is cut into pieces, and each piece, and the header first, is followed by its tag. A tag is
// of the bytes and of the tag before it, so that pieces of two files, or in another order, do not fit together.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "engine/store/stream.h"

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
  Tag next(std::span<const unsigned char> bytes);
  bool check(std::span<const unsigned char> bytes, const unsigned char* tag);

 private:
  std::array<unsigned char, 64> key_{};
  size_t key_bytes_;
  Tag last_{};
};

// Bytes of a body with its tags. Throws OVERFLOW.
uint64_t tagged_bytes(uint64_t body);

class PieceWriter {
 public:
  PieceWriter(Sink& sink, Tagger tagger) : sink_(sink), tagger_(tagger), piece_(piece_bytes + tag_bytes) {}
  void write_header(std::span<const unsigned char> header);
  void write(const void* from, size_t n);
  // Room for the next n bytes, which the caller fills in before the next call. n <= piece_bytes.
  unsigned char* next(size_t n);
  void flush();

 private:
  void copy(const void* from, size_t n);
  void pass();

  Sink& sink_;
  Tagger tagger_;
  std::vector<unsigned char> piece_;
  size_t filled_ = 0;
  std::vector<unsigned char> across_;  // what next() gave where the piece had too little room
  bool pending_ = false;
};

class PieceReader {
 public:
  // The header was read and checked already, by this tagger.
  PieceReader(Source& source, const Tagger& tagger, uint64_t body);
  // The next n bytes, there until the next call; throws CORRUPT where they are not what was written.
  const unsigned char* next(size_t n);
  void read(void* to, size_t n);
  void skip(uint64_t n);

 private:
  void refill();

  Source* source_;
  Tagger tagger_;
  uint64_t left_;  // of the body, not yet in piece_
  std::vector<unsigned char> piece_;
  size_t at_ = 0, end_ = 0;
  std::vector<unsigned char> across_;
};

}  // namespace pkv
