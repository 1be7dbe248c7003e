// Calls libcrypto.
#if defined(PKV_WITH_CIPHERS)
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <new>

#include "base/aes_gcm.h"

namespace pkv {

namespace {

// With valid arguments, as here, libcrypto fails only if it has no memory.
void check(int result) {
  if (result != 1) throw std::bad_alloc();
}

// The state of encrypting or decrypting one message. libcrypto wipes it when it is freed.
class Context {
 public:
  Context(std::span<const unsigned char> key, std::span<const unsigned char> nonce, bool encrypts)
      : context_(EVP_CIPHER_CTX_new()), encrypts_(encrypts) {
    if (context_ == nullptr) throw std::bad_alloc();
    if (EVP_CipherInit_ex(context_, EVP_aes_256_gcm(), nullptr, key.data(), nonce.data(),
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
  void tag(unsigned char* tag, size_t size) {
    check(EVP_CIPHER_CTX_ctrl(context_, encrypts_ ? EVP_CTRL_AEAD_GET_TAG : EVP_CTRL_AEAD_SET_TAG,
                              static_cast<int>(size), tag));
  }

 private:
  EVP_CIPHER_CTX* const context_;
  const bool encrypts_;
};

}  // namespace

void encrypt_aes_gcm(std::span<const unsigned char> key, std::span<const unsigned char> nonce,
                     std::span<unsigned char> bytes, std::span<unsigned char> tag) {
  Context context(key, nonce, true);
  context.update(bytes);
  check(context.end());
  context.tag(tag.data(), tag.size());
}

bool decrypt_aes_gcm(std::span<const unsigned char> key, std::span<const unsigned char> nonce,
                     std::span<unsigned char> bytes, std::span<const unsigned char> tag) {
  Context context(key, nonce, false);
  context.update(bytes);
  context.tag(const_cast<unsigned char*>(tag.data()), tag.size());
  return context.end();
}

}  // namespace pkv

#endif
