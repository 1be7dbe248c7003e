#include "engine/store/pieces.h"

#include <algorithm>
#include <cstring>
#include <utility>

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

uint64_t tagged_bytes(uint64_t body) {
  return checked_add(body, checked_mul(ceil_div(body, piece_bytes), tag_bytes, "tags of the file"), "bytes of the file");
}

// ---- Writing --------------------------------------------------------------------------------------------------------

void PieceWriter::write_header(std::span<const unsigned char> header) {
  const Tag tag = tagger_.next(header);
  sink_.write(header.data(), header.size());
  sink_.write(tag.data(), tag.size());
}

// What next() gave is filled in by now.
void PieceWriter::pass() {
  if (!pending_) return;
  pending_ = false;
  copy(across_.data(), across_.size());
}

void PieceWriter::copy(const void* from, size_t n) {
  const auto* bytes = static_cast<const unsigned char*>(from);
  while (n > 0) {
    if (filled_ == piece_bytes) flush();
    const size_t count = std::min(n, piece_bytes - filled_);
    std::memcpy(piece_.data() + filled_, bytes, count);
    filled_ += count, bytes += count, n -= count;
  }
}

void PieceWriter::write(const void* from, size_t n) {
  pass();
  copy(from, n);
}

unsigned char* PieceWriter::next(size_t n) {
  pass();
  if (filled_ == piece_bytes) flush();
  if (n <= piece_bytes - filled_) return piece_.data() + std::exchange(filled_, filled_ + n);
  across_.resize(n);
  pending_ = true;
  return across_.data();
}

void PieceWriter::flush() {
  pass();
  if (filled_ == 0) return;
  const Tag tag = tagger_.next(std::span(piece_).first(filled_));
  std::copy(tag.begin(), tag.end(), piece_.begin() + static_cast<std::ptrdiff_t>(filled_));
  sink_.write(piece_.data(), filled_ + tag_bytes);
  filled_ = 0;
}

// ---- Reading --------------------------------------------------------------------------------------------------------

PieceReader::PieceReader(Source& source, const Tagger& tagger, uint64_t body)
    : source_(&source), tagger_(tagger), left_(body), piece_(static_cast<size_t>(std::min<uint64_t>(body, piece_bytes)) + tag_bytes) {}

void PieceReader::refill() {
  const size_t count = static_cast<size_t>(std::min<uint64_t>(left_, piece_bytes));
  if (count == 0) fail(PKV_CORRUPT, "the tables of the file tell of more bytes than it has");
  if (source_->read(piece_.data(), count + tag_bytes) < count + tag_bytes) fail(PKV_CORRUPT, "the file is cut short");
  if (!tagger_.check(std::span(piece_).first(count), piece_.data() + count))
    fail(PKV_CORRUPT, "%zu bytes of the file are not what was written, or were written with another key", count);
  left_ -= count;
  at_ = 0;
  end_ = count;
}

const unsigned char* PieceReader::next(size_t n) {
  if (at_ == end_) refill();
  if (n <= end_ - at_) return piece_.data() + std::exchange(at_, at_ + n);
  across_.resize(n);
  read(across_.data(), n);
  return across_.data();
}

void PieceReader::read(void* to, size_t n) {
  auto* bytes = static_cast<unsigned char*>(to);
  while (n > 0) {
    if (at_ == end_) refill();
    const size_t count = std::min(n, end_ - at_);
    std::memcpy(bytes, piece_.data() + at_, count);
    at_ += count, bytes += count, n -= count;
  }
}

void PieceReader::skip(uint64_t n) {
  while (n > 0) {
    if (at_ == end_) refill();
    const size_t count = static_cast<size_t>(std::min<uint64_t>(n, end_ - at_));
    at_ += count, n -= count;
  }
}

}  // namespace pkv
