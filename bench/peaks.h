// What the machine can do at most, measured in the same run: the denominators of the ratios.
#pragma once

#include <cstddef>

namespace pkv::bench {

unsigned processors();

// Memory in huge pages where the system offers them, touched; never given back.
unsigned char* big_buffer(size_t bytes);

// Seconds in which all processors read their shares of so many bytes, which the caches do not hold.
// At most largest_read bytes.
inline constexpr size_t largest_read = size_t{1} << 30;
double read_seconds(size_t bytes);

// The same of a memcpy. At most largest_copy bytes.
inline constexpr size_t largest_copy = size_t{1} << 28;
double copy_seconds(size_t bytes);

// Floating-point operations per second of independent fp32 multiply-adds in registers, with the
// widest vectors, on all processors: one measurement of about 20 ms.
double fma_rate();

}  // namespace pkv::bench
