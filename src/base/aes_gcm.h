// AES-256-GCM, of libcrypto or of Windows. A build without keys has none.
#pragma once

#include <span>

namespace pkv {

// Encrypts bytes in place, and writes their tag of 16 bytes. The key has 32 bytes, the nonce 12.
// Throws bad_alloc; then the bytes are undefined.
void encrypt_aes_gcm(std::span<const unsigned char> key, std::span<const unsigned char> nonce,
                     std::span<unsigned char> bytes, std::span<unsigned char> tag);
// Decrypts bytes in place. Returns false if the bytes or the tag are not what was encrypted; then
// the bytes must not be used. Throws bad_alloc.
bool decrypt_aes_gcm(std::span<const unsigned char> key, std::span<const unsigned char> nonce,
                     std::span<unsigned char> bytes, std::span<const unsigned char> tag);

}  // namespace pkv
