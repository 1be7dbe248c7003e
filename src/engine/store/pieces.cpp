#include "engine/store/pieces.h"

#include <algorithm>
#include <cstring>

#if defined(PKV_WITH_SODIUM)
#include <sodium.h>
#endif
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/checked.h"

namespace pkv {

Tagger::Tagger(std::span<const unsigned char> key) : key_bytes_(key.size()) {
  std::copy(key.begin(), key.end(), key_.begin());
  if (key.empty()) return;
#if defined(PKV_WITH_SODIUM)
  if (sodium_init() < 0) fail(PKV_UNSUPPORTED, "libsodium could not be initialised");
#else
  fail(PKV_UNSUPPORTED, "a key is given, but this build is without libsodium");
#endif
}

Tagger::~Tagger() {
#if defined(PKV_WITH_SODIUM)
  sodium_memzero(key_.data(), key_.size());
#endif
}

Tag Tagger::next(std::span<const unsigned char> bytes) {
#if defined(PKV_WITH_SODIUM)
  if (key_bytes_ > 0) {
    crypto_generichash_state state;
    crypto_generichash_init(&state, key_.data(), key_bytes_, tag_bytes);
    crypto_generichash_update(&state, last_.data(), last_.size());
    crypto_generichash_update(&state, bytes.data(), bytes.size());
    crypto_generichash_final(&state, last_.data(), last_.size());
    return last_;
  }
#endif
  uint64_t seed;
  std::memcpy(&seed, last_.data(), sizeof seed);
  const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
  std::memcpy(last_.data(), &hash.low64, sizeof hash.low64);
  std::memcpy(last_.data() + sizeof hash.low64, &hash.high64, sizeof hash.high64);
  return last_;
}

bool Tagger::check(std::span<const unsigned char> bytes, const unsigned char* tag) {
  const Tag expected = next(bytes);
#if defined(PKV_WITH_SODIUM)
  if (key_bytes_ > 0) return sodium_memcmp(expected.data(), tag, tag_bytes) == 0;  // in a time that tells nothing
#endif
  return std::memcmp(expected.data(), tag, tag_bytes) == 0;
}

bool Tagger::check_after(const Tag& before, std::span<const unsigned char> bytes, const Tag& tag) const {
  Tagger tagger = *this;
  tagger.last_ = before;
  return tagger.check(bytes, tag.data());
}

uint64_t tagged_bytes(uint64_t body) {
  return checked_add(body, checked_mul(ceil_div(body, piece_bytes), tag_bytes, "tags of the file"), "bytes of the file");
}

}  // namespace pkv
