// The machine's limits, measured in the same run: the denominators of the ratios.
#pragma once

#include <cstddef>

namespace pkv::bench {

unsigned processors();

// Memory in huge pages if the system offers them, touched; never freed.
unsigned char* big_buffer(size_t bytes);

// Returns the seconds in which the threads read their shares of `bytes`, which exceed every cache.
// At most largest_read bytes.
inline constexpr size_t largest_read = size_t{1} << 30;
double read_seconds(size_t bytes, unsigned threads = processors());

// The same of a memcpy. At most largest_copy bytes.
inline constexpr size_t largest_copy = size_t{1} << 28;
double copy_seconds(size_t bytes);

// Floating-point operations per second of independent fp32 multiply-adds in registers, with the
// widest vectors: one measurement of about 20 ms.
double fma_rate(unsigned threads = processors());

// The same of other multiply-add instructions, or 0 if the CPU lacks them: pairs of fp16
// (AVX512-FP16), dot products of bf16 (AVX512-BF16), and tiles of bf16 in the matrix unit (AMX).
double fp16_rate(unsigned threads = processors());
double bf16_rate(unsigned threads = processors());
double matrix_unit_rate(unsigned threads = processors());

}  // namespace pkv::bench
