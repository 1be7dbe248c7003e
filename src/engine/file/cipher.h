// Encryption of files and of what stores have: AES-256-GCM of libcrypto, with keys that BLAKE2b of
// libsodium derives from the caller's. Every file and every item has a key of its own, made of
// random bytes in it: so no nonce is ever used twice.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/secret.h"

namespace pkv::file {

inline constexpr size_t tag_bytes = 16;
using Tag = std::array<unsigned char, tag_bytes>;
using Nonce = std::array<unsigned char, 12>;

// Throws UNSUPPORTED in a build without libsodium or libcrypto.
void check_ciphers();

// What a derived key is for: 16 letters, which make it differ from all others.
inline constexpr char file_key_purpose[] = "pagedkv file key",
                      file_tag_purpose[] = "pagedkv file tag",
                      item_key_purpose[] = "pagedkv item key";
// `size` bytes that follow from a key, a purpose and a context, and tell nothing of the key.
Secret derive(std::span<const unsigned char> key, const char* purpose,
              std::span<const unsigned char> context, size_t size) noexcept;

void fill_with_random(std::span<unsigned char> bytes) noexcept;
// Compares in a time that tells nothing of where they differ.
bool equal_secretly(std::span<const unsigned char> a, std::span<const unsigned char> b) noexcept;

// In place. The key has 32 bytes and is never used with the same nonce again. Throws bad_alloc.
Tag encrypt(const Secret& key, const Nonce& nonce, std::span<unsigned char> bytes);
// False: the bytes or the tag are not what encrypt() made; then nothing of the bytes is of use.
// Throws bad_alloc.
bool decrypt(const Secret& key, const Nonce& nonce, std::span<unsigned char> bytes, const Tag& tag);

}  // namespace pkv::file
