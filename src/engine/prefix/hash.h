// A number for a block and all that is before it, salt included: well mixed, so that statistics can
// sample and count by it. It decides no match.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace pkv::prefix {

uint64_t hash_salt(std::string_view salt) noexcept;
// Of each block of a text (hashes.size() of them), where `before` is the hash of what comes before
// it.
void hash_blocks(std::span<const int32_t> text, uint64_t before,
                 std::span<uint64_t> hashes) noexcept;

}  // namespace pkv::prefix
