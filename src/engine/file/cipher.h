// The cryptography of files and of items in stores: AES-256-GCM, with keys that
// BLAKE2b of libsodium derives from the caller's key. Every file and every item contains random
// bytes from which its own key is derived, so no key and nonce are used twice.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/secret.h"

namespace pkv::file {

inline constexpr size_t tag_bytes = 16;
using Tag = std::array<unsigned char, tag_bytes>;
using Nonce = std::array<unsigned char, 12>;

// Throws UNSUPPORTED in a build without libsodium or AES-256-GCM.
void check_ciphers();

// What a derived key is for. Each is a BLAKE2b personalisation of 16 characters, so keys for
// different purposes differ.
inline constexpr char file_key_purpose[] = "pagedkv file key",
                      file_tag_purpose[] = "pagedkv file tag",
                      item_key_purpose[] = "pagedkv item key";
// Derives `size` bytes from a key, a purpose and a context. They reveal nothing about the key.
Secret derive(std::span<const unsigned char> key, const char* purpose,
              std::span<const unsigned char> context, size_t size) noexcept;

void fill_with_random(std::span<unsigned char> bytes) noexcept;
// Compares in a time that does not depend on where the bytes differ.
bool equal_in_constant_time(std::span<const unsigned char> a,
                            std::span<const unsigned char> b) noexcept;

// Encrypts bytes in place and returns their tag. The key has 32 bytes and must never be used with
// the same nonce again. Throws bad_alloc; then the bytes are undefined.
Tag encrypt(const Secret& key, const Nonce& nonce, std::span<unsigned char> bytes);
// Decrypts bytes in place. Returns false if the bytes or the tag are not what encrypt() made; then
// the bytes must not be used. Throws bad_alloc.
bool decrypt(const Secret& key, const Nonce& nonce, std::span<unsigned char> bytes, const Tag& tag);

}  // namespace pkv::file
