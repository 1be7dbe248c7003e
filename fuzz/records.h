// The form of an input that is a list of operations: a header, then records of one size.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

inline constexpr size_t header_bytes = 4, record_bytes = 16;
using Record = std::array<uint8_t, record_bytes>;
