// The file format a second time, written from FORMAT.md alone. It makes right tags for any bytes,
// so that tests also reach the code behind the tags.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace store_file {

inline constexpr size_t header_bytes = 48, tag_bytes = 16, piece_bytes = 262144;

inline void put_tag(const unsigned char* bytes, size_t n, uint64_t& seed, unsigned char* tag) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes, n, seed);
  std::memcpy(tag, &hash.low64, 8);
  std::memcpy(tag + 8, &hash.high64, 8);
  seed = hash.low64;
}

// Makes every tag of a file right, as far as the file goes: that of the header, then those of its
// pieces.
inline void seal(std::vector<unsigned char>& file) {
  if (file.size() < header_bytes + tag_bytes) return;
  // The sizes of the tables, of keys and values, and of lengths.
  uint64_t seed = 0, sizes[3];
  put_tag(file.data(), header_bytes, seed, file.data() + header_bytes);
  std::memcpy(sizes, file.data() + 16, sizeof sizes);
  uint64_t body = sizes[0] + sizes[1] + sizes[2];
  for (size_t at = header_bytes + tag_bytes; at + tag_bytes <= file.size() && body > 0;) {
    const size_t n =
        static_cast<size_t>(std::min<uint64_t>({body, piece_bytes, file.size() - at - tag_bytes}));
    put_tag(file.data() + at, n, seed, file.data() + at + n);
    body -= n;
    at += n + tag_bytes;
  }
}

// Makes a file of its tables, of keys and values, and, if it has them, of how many tokens of each
// chain there are.
inline std::vector<unsigned char> file_of(const std::vector<unsigned char>& tables,
                                          const std::vector<unsigned char>& kv,
                                          const std::vector<unsigned char>& lengths = {},
                                          unsigned char version = 1) {
  std::vector<unsigned char> body = tables;
  body.resize((tables.size() + 63) / 64 * 64);
  const uint64_t sizes[] = {body.size(), kv.size(), lengths.size()};
  body.insert(body.end(), kv.begin(), kv.end());
  body.insert(body.end(), lengths.begin(), lengths.end());
  std::vector<unsigned char> file = {0x89,    0x50, 0x4B, 0x56, 0x0D, 0x0A, 0x1A, 0x0A,
                                     version, 0,    0,    0,    0,    0,    0,    0};
  file.resize(header_bytes + tag_bytes);
  std::memcpy(file.data() + 16, sizes, sizeof sizes);
  for (size_t at = 0; at < body.size(); at += piece_bytes) {
    const size_t n = std::min(piece_bytes, body.size() - at);
    file.insert(file.end(), body.begin() + static_cast<std::ptrdiff_t>(at),
                body.begin() + static_cast<std::ptrdiff_t>(at + n));
    file.resize(file.size() + tag_bytes);
  }
  seal(file);
  return file;
}

}  // namespace store_file
