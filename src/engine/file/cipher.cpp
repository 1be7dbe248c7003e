// Calls libcrypto and libsodium. In a build without them check_ciphers() refuses every key, and the
// other functions are never called.
#include "engine/file/cipher.h"

#include <algorithm>
#include <new>

#include "base/status.h"

#if defined(PKV_WITH_CIPHERS)
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sodium.h>
#endif

namespace pkv::file {

#if defined(PKV_WITH_CIPHERS)

namespace {

// With valid arguments, as here, libcrypto fails only if it has no memory.
void check(int result) {
  if (result != 1) throw std::bad_alloc();
}

// The state of encrypting or decrypting one message. libcrypto wipes it when it is freed.
class Context {
 public:
  Context(const Secret& key, const Nonce& nonce, bool encrypts)
      : context_(EVP_CIPHER_CTX_new()), encrypts_(encrypts) {
    if (context_ == nullptr) throw std::bad_alloc();
    if (EVP_CipherInit_ex(context_, EVP_aes_256_gcm(), nullptr, key.bytes().data(), nonce.data(),
                          encrypts ? 1 : 0) == 1)
      return;
    EVP_CIPHER_CTX_free(context_);
    throw std::bad_alloc();
  }
  ~Context() { EVP_CIPHER_CTX_free(context_); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Encrypts or decrypts in parts, since libcrypto takes sizes as int.
  void update(std::span<unsigned char> bytes) {
    constexpr size_t max_part = size_t{1} << 30;
    for (size_t at = 0; at < bytes.size(); at += max_part) {
      unsigned char* const part = bytes.data() + at;
      int written = 0;
      check(EVP_CipherUpdate(context_, part, &written, part,
                             static_cast<int>(std::min(max_part, bytes.size() - at))));
    }
  }
  // Returns false if the tag that was set does not match the decrypted bytes.
  bool end() {
    unsigned char nothing[16];
    int written = 0;
    return EVP_CipherFinal_ex(context_, nothing, &written) == 1;
  }
  // Gets the tag after encryption, or sets the one to check before the end of decryption.
  void tag(void* tag) {
    check(EVP_CIPHER_CTX_ctrl(context_, encrypts_ ? EVP_CTRL_AEAD_GET_TAG : EVP_CTRL_AEAD_SET_TAG,
                              tag_bytes, tag));
  }

 private:
  EVP_CIPHER_CTX* const context_;
  const bool encrypts_;
};

}  // namespace

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
  Context context(key, nonce, true);
  context.update(bytes);
  check(context.end());
  Tag tag;
  context.tag(tag.data());
  return tag;
}

bool decrypt(const Secret& key, const Nonce& nonce, std::span<unsigned char> bytes,
             const Tag& tag) {
  Context context(key, nonce, false);
  context.update(bytes);
  Tag expected = tag;
  context.tag(expected.data());
  return context.end();
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
