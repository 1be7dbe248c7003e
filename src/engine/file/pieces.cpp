#include "engine/file/pieces.h"

#include <algorithm>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/checked.h"

namespace pkv::file {

namespace {

constexpr size_t cipher_key_bytes = 32;

// The file's key is no other file's, so its pieces may be counted from 0.
Nonce nonce_of(const Place& place) {
  Nonce nonce{};
  std::memcpy(nonce.data(), &place.number, sizeof place.number);
  nonce[sizeof place.number] = place.last ? 1 : 0;
  return nonce;
}

}  // namespace

Tag checksum(const Tag& before, std::span<const unsigned char> bytes) noexcept {
  uint64_t seed;
  std::memcpy(&seed, before.data(), sizeof seed);
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
  return encrypts() ? equal_secretly(header_tag_, tag) : header_tag_ == tag;
}

Tag Sealer::seal(const Place& place, std::span<unsigned char> bytes) const {
  return encrypts() ? encrypt(key_, nonce_of(place), bytes) : checksum(place.before, bytes);
}

bool Sealer::open(const Place& place, std::span<unsigned char> bytes, const Tag& tag) const {
  return encrypts() ? decrypt(key_, nonce_of(place), bytes, tag)
                    : checksum(place.before, bytes) == tag;
}

uint64_t tagged_bytes(uint64_t body) {
  return checked_add(body, checked_mul(ceil_div(body, piece_bytes), tag_bytes, "tags of the file"),
                     "bytes of the file");
}

}  // namespace pkv::file
