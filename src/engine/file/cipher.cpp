// Calls libsodium and AES-GCM. In a build without them check_ciphers() refuses every key, and the
// other functions are never called.
#include "engine/file/cipher.h"

#include <new>

#include "base/aes_gcm.h"
#include "base/status.h"

#if defined(PKV_WITH_CIPHERS)
#include <sodium.h>
#endif

namespace pkv::file {

#if defined(PKV_WITH_CIPHERS)

void check_ciphers() {
  if (sodium_init() < 0) fail(PKV_UNSUPPORTED, "libsodium could not be initialised");
}

Secret derive(std::span<const unsigned char> key, const char* purpose,
              std::span<const unsigned char> context, size_t size) noexcept {
  Secret derived;
  const std::span<unsigned char> room = derived.resize(size);
  crypto_generichash_blake2b_salt_personal(room.data(), room.size(), context.data(), context.size(),
                                           key.data(), key.size(), nullptr,
                                           reinterpret_cast<const unsigned char*>(purpose));
  return derived;
}

void fill_with_random(std::span<unsigned char> bytes) noexcept {
  randombytes_buf(bytes.data(), bytes.size());
}

bool equal_in_constant_time(std::span<const unsigned char> a,
                            std::span<const unsigned char> b) noexcept {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

Tag encrypt(const Secret& key, const Nonce& nonce, std::span<unsigned char> bytes) {
  Tag tag;
  encrypt_aes_gcm(key.bytes(), nonce, bytes, tag);
  return tag;
}

bool decrypt(const Secret& key, const Nonce& nonce, std::span<unsigned char> bytes,
             const Tag& tag) {
  return decrypt_aes_gcm(key.bytes(), nonce, bytes, tag);
}

#else

void check_ciphers() {
  fail(PKV_UNSUPPORTED, "a key is given, but this build is without libsodium or libcrypto");
}

// Never called, because check_ciphers() is called first wherever there is a key, and throws.
Secret derive(std::span<const unsigned char>, const char*, std::span<const unsigned char>,
              size_t) noexcept {
  return {};
}
void fill_with_random(std::span<unsigned char>) noexcept {}
bool equal_in_constant_time(std::span<const unsigned char>,
                            std::span<const unsigned char>) noexcept {
  return false;
}
Tag encrypt(const Secret&, const Nonce&, std::span<unsigned char>) { throw std::bad_alloc(); }
bool decrypt(const Secret&, const Nonce&, std::span<unsigned char>, const Tag&) { return false; }

#endif

}  // namespace pkv::file
