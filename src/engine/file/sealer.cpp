// Computes checksums and tags; the ciphers are in cipher.cpp.
#include "engine/file/sealer.h"

#include <algorithm>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace pkv::file {

namespace {

constexpr size_t cipher_key_bytes = 32;

// The number of the piece suffices as nonce, because each file has a key of its own.
Nonce nonce_of(const PiecePosition& position) {
  Nonce nonce{};
  std::memcpy(nonce.data(), &position.number, sizeof position.number);
  nonce[sizeof position.number] = position.last ? 1 : 0;
  return nonce;
}

}  // namespace

Tag checksum(const Tag& previous_tag, std::span<const unsigned char> bytes) noexcept {
  uint64_t seed;
  std::memcpy(&seed, previous_tag.data(), sizeof seed);
  const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
  Tag tag;
  std::memcpy(tag.data(), &hash.low64, sizeof hash.low64);
  std::memcpy(tag.data() + sizeof hash.low64, &hash.high64, sizeof hash.high64);
  return tag;
}

Sealer::Sealer(std::span<const unsigned char> key, std::span<const unsigned char> header)
    : header_tag_(checksum({}, header)) {
  if (key.empty()) return;
  check_ciphers();
  key_ = derive(key, file_key_purpose, header, cipher_key_bytes);
  const Secret tag = derive(key, file_tag_purpose, header, tag_bytes);
  std::copy(tag.bytes().begin(), tag.bytes().end(), header_tag_.begin());
}

bool Sealer::check_header(const Tag& tag) const {
  return encrypts() ? equal_in_constant_time(header_tag_, tag) : header_tag_ == tag;
}

Tag Sealer::seal(const PiecePosition& position, std::span<unsigned char> bytes) const {
  return encrypts() ? encrypt(key_, nonce_of(position), bytes)
                    : checksum(position.previous_tag, bytes);
}

bool Sealer::open(const PiecePosition& position, std::span<unsigned char> bytes,
                  const Tag& tag) const {
  return encrypts() ? decrypt(key_, nonce_of(position), bytes, tag)
                    : checksum(position.previous_tag, bytes) == tag;
}

}  // namespace pkv::file
