// What the machine can do at most, measured in the same run: the denominators of the ratios.
#pragma once

#include <cstddef>

namespace pkv::bench {

unsigned processors();

// Memory in huge pages where the system offers them, touched; never given back.
unsigned char* big_buffer(size_t bytes);

// Bytes per second of all processors reading their share of a buffer far larger than the last-level cache; the best of some rounds.
double read_limit();

// The same of memcpy, counting bytes copied.
double copy_limit();

// Floating-point operations per second of independent fp32 multiply-adds in registers, with the widest vectors, on so many threads.
double fma_limit(unsigned threads);

}  // namespace pkv::bench
