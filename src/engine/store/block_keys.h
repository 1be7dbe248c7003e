// Computes the keys under which a store has blocks: BLAKE2b-256 over the model, the salt and all
// tokens up to the end of the block. Nobody can find two texts with the same key. If the caller
// gives a secret, nobody else can tell which text a key stands for.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/secret.h"
#include "engine/file/format.h"

namespace pkv::store {

using ContentKey = std::array<unsigned char, 32>;

// Hashes what all blocks of a cache have in common: the first step of every key. Throws UNSUPPORTED
// in a build without libsodium.
ContentKey hash_model(uint32_t block_size, std::span<const file::SavedGroup> groups,
                      std::span<const unsigned char> fingerprint, const Secret& secret);

// Takes one step from a key to the next: hashes it and the bytes that come after it.
ContentKey extend(const ContentKey& key, std::span<const unsigned char> bytes) noexcept;

template <class Number>
ContentKey extend(const ContentKey& key, std::span<const Number> numbers) noexcept {
  return extend(key,
                {reinterpret_cast<const unsigned char*>(numbers.data()), numbers.size_bytes()});
}

}  // namespace pkv::store
