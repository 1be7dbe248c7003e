// The hash of a block and of all that comes before it, salt included. Statistics sample and count
// by it; matches compare the tokens themselves.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace pkv::prefix {

uint64_t hash_salt(std::string_view salt) noexcept;
// Hashes each of the hashes.size() blocks of a text; before: the hash of what comes before the
// text.
void hash_blocks(std::span<const int32_t> text, uint64_t before,
                 std::span<uint64_t> hashes) noexcept;

}  // namespace pkv::prefix
