// A second implementation of the file format, written only from FORMAT.md. It makes valid tags for
// any bytes, so that tests also reach the code behind the tags.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace store_file {

inline constexpr size_t header_bytes = 48, tag_bytes = 16, sizes_bytes = 64, piece_bytes = 262144;
// Where a file without a key has the bytes of its body, its sizes and its tables.
inline constexpr size_t body_bytes_at = 16, sizes_at = header_bytes + tag_bytes,
                        tables_at = sizes_at + sizes_bytes;

inline void put_tag(const unsigned char* bytes, size_t n, uint64_t& seed, unsigned char* tag) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes, n, seed);
  std::memcpy(tag, &hash.low64, 8);
  std::memcpy(tag + 8, &hash.high64, 8);
  seed = hash.low64;
}

// Corrects every tag of a file, as far as the file goes: that of the header, then those of its
// pieces.
inline void seal(std::vector<unsigned char>& file) {
  if (file.size() < header_bytes + tag_bytes) return;
  uint64_t seed = 0, body;
  put_tag(file.data(), header_bytes, seed, file.data() + header_bytes);
  std::memcpy(&body, file.data() + body_bytes_at, sizeof body);
  for (size_t at = header_bytes + tag_bytes; at + tag_bytes <= file.size() && body > 0;) {
    const size_t n =
        static_cast<size_t>(std::min<uint64_t>({body, piece_bytes, file.size() - at - tag_bytes}));
    put_tag(file.data() + at, n, seed, file.data() + at + n);
    body -= n;
    at += n + tag_bytes;
  }
}

// Makes a file of its tables, of keys and values, and of how many tokens of each chain there are.
inline std::vector<unsigned char> file_of(const std::vector<unsigned char>& tables,
                                          const std::vector<unsigned char>& kv,
                                          const std::vector<unsigned char>& lengths) {
  const uint64_t sizes[] = {(tables.size() + 63) / 64 * 64, kv.size(), lengths.size()};
  std::vector<unsigned char> body(sizes_bytes);
  std::memcpy(body.data(), sizes, sizeof sizes);
  body.insert(body.end(), tables.begin(), tables.end());
  body.resize(sizes_bytes + sizes[0]);
  body.insert(body.end(), kv.begin(), kv.end());
  body.insert(body.end(), lengths.begin(), lengths.end());
  std::vector<unsigned char> file = {0x89, 0x50, 0x4B, 0x56, 0x0D, 0x0A, 0x1A, 0x0A, 1};
  file.resize(header_bytes + tag_bytes);
  const uint64_t body_bytes = body.size();
  std::memcpy(file.data() + body_bytes_at, &body_bytes, sizeof body_bytes);
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
