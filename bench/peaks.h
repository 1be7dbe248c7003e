// Measures the machine's limits in the same run. They are the denominators of the ratios.
#pragma once

#include <cstddef>

namespace pkv::bench {

// Returns the number of CPUs that this process may use (taskset).
unsigned processors();

// Returns memory in huge pages, if the system offers them. Its pages are in memory, and it is never
// freed.
unsigned char* big_buffer(size_t bytes);

// Returns the seconds in which the threads read their shares of `bytes`, at most largest_read, some
// times over. It is always the same memory.
inline constexpr size_t largest_read = size_t{1} << 30;
double read_seconds(size_t bytes, size_t times = 1, unsigned threads = processors());

// Does the same for a memcpy of at most largest_copy bytes.
inline constexpr size_t largest_copy = size_t{1} << 28;
double copy_seconds(size_t bytes);

// Returns the seconds in which the threads do as many floating-point operations by independent fp32
// multiply-adds in registers, with the widest vectors.
double fma_seconds(double operations, unsigned threads = processors());

// Returns their floating-point operations per second. One measurement takes about 20 ms.
double fma_rate(unsigned threads = processors());

// The same for other multiply-add instructions: pairs of fp16 (AVX512-FP16), dot products of bf16
// (AVX512-BF16), and tiles of bf16 in the matrix unit (AMX). They return 0 if the CPU does not have
// them.
double fp16_rate(unsigned threads = processors());
double bf16_rate(unsigned threads = processors());
double matrix_unit_rate(unsigned threads = processors());

}  // namespace pkv::bench
