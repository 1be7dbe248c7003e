// Calls Windows' library of cryptography (CNG).
#include "base/aes_gcm.h"
#include "base/windows.h"
// After windows.h.
#include <bcrypt.h>

#include <new>

namespace pkv {

namespace {

// With valid arguments, as here, these calls fail only if there is no memory.
void check(NTSTATUS status) {
  if (status < 0) throw std::bad_alloc();
}

BCRYPT_ALG_HANDLE open_algorithm() {
  BCRYPT_ALG_HANDLE algorithm = nullptr;
  check(BCryptOpenAlgorithmProvider(&algorithm, BCRYPT_AES_ALGORITHM, nullptr, 0));
  wchar_t mode[] = BCRYPT_CHAIN_MODE_GCM;
  check(BCryptSetProperty(algorithm, BCRYPT_CHAINING_MODE, reinterpret_cast<unsigned char*>(mode),
                          sizeof mode, 0));
  return algorithm;
}

// Windows wipes the key when it is destroyed.
class Key {
 public:
  explicit Key(std::span<const unsigned char> bytes) {
    static const BCRYPT_ALG_HANDLE algorithm = open_algorithm();  // stays open
    check(BCryptGenerateSymmetricKey(algorithm, &handle_, nullptr, 0,
                                     const_cast<unsigned char*>(bytes.data()),
                                     static_cast<ULONG>(bytes.size()), 0));
  }
  ~Key() { BCryptDestroyKey(handle_); }
  Key(const Key&) = delete;
  Key& operator=(const Key&) = delete;
  BCRYPT_KEY_HANDLE get() const { return handle_; }

 private:
  BCRYPT_KEY_HANDLE handle_ = nullptr;
};

using Call = decltype(BCryptEncrypt);

NTSTATUS call(Call* encrypt_or_decrypt, std::span<const unsigned char> key,
              std::span<const unsigned char> nonce, std::span<unsigned char> bytes,
              std::span<const unsigned char> tag) {
  if (bytes.size() > UINT32_MAX) throw std::bad_alloc();  // no block of a cache is that large
  const Key scheduled(key);
  BCRYPT_AUTHENTICATED_CIPHER_MODE_INFO mode;
  BCRYPT_INIT_AUTH_MODE_INFO(mode);
  mode.pbNonce = const_cast<unsigned char*>(nonce.data());
  mode.cbNonce = static_cast<ULONG>(nonce.size());
  mode.pbTag = const_cast<unsigned char*>(tag.data());
  mode.cbTag = static_cast<ULONG>(tag.size());
  // Without memory for the result, Windows would only return its size.
  unsigned char none = 0;
  unsigned char* const at = bytes.empty() ? &none : bytes.data();
  const auto size = static_cast<ULONG>(bytes.size());
  ULONG written = 0;
  return encrypt_or_decrypt(scheduled.get(), at, size, &mode, nullptr, 0, at, size, &written, 0);
}

}  // namespace

void encrypt_aes_gcm(std::span<const unsigned char> key, std::span<const unsigned char> nonce,
                     std::span<unsigned char> bytes, std::span<unsigned char> tag) {
  check(call(BCryptEncrypt, key, nonce, bytes, tag));
}

bool decrypt_aes_gcm(std::span<const unsigned char> key, std::span<const unsigned char> nonce,
                     std::span<unsigned char> bytes, std::span<const unsigned char> tag) {
  constexpr auto tag_mismatch = static_cast<NTSTATUS>(0xC000A002);
  const NTSTATUS status = call(BCryptDecrypt, key, nonce, bytes, tag);
  if (status != tag_mismatch) check(status);
  return status != tag_mismatch;
}

}  // namespace pkv
