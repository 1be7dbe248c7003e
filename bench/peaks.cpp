#include "peaks.h"

#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace pkv::bench {

namespace {

using Clock = std::chrono::steady_clock;

template <class Work>
double seconds_of(unsigned threads, const Work& work) {
  const auto begin = Clock::now();
  std::vector<std::thread> workers;
  for (unsigned t = 1; t < threads; t++) workers.emplace_back([&, t] { work(t); });
  work(0);
  for (std::thread& worker : workers) worker.join();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

#if defined(__x86_64__)
typedef float Wide __attribute__((vector_size(64)));
typedef float Half __attribute__((vector_size(32)));
#endif
typedef float Quad __attribute__((vector_size(16)));

// Chains enough to hide the latency of a multiply-add.
template <class Vector>
[[gnu::always_inline]] inline void multiply_add(size_t rounds) {
  Vector sum[12];
  for (Vector& vector : sum) vector = Vector{} + 1.0f;
  Vector factor = Vector{} + 1.0000001f, addend = Vector{} + 1e-9f;
  benchmark::DoNotOptimize(factor);
  for (size_t i = 0; i < rounds; i++) {
#pragma GCC unroll 12
    for (Vector& vector : sum) vector = vector * factor + addend;
  }
  for (Vector& vector : sum) benchmark::DoNotOptimize(vector);
}

struct Units {
  void (*run)(size_t rounds);
  unsigned lanes;
};

#if defined(__x86_64__)
[[gnu::target("avx512f,avx2,fma")]] void run_wide(size_t rounds) { multiply_add<Wide>(rounds); }
[[gnu::target("avx2,fma")]] void run_half(size_t rounds) { multiply_add<Half>(rounds); }
#endif
void run_quad(size_t rounds) { multiply_add<Quad>(rounds); }

Units units() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {run_wide, 16};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {run_half, 8};
#endif
  return {run_quad, 4};
}

}  // namespace

unsigned processors() { return std::max(1u, std::thread::hardware_concurrency()); }

unsigned char* big_buffer(size_t bytes) {
  constexpr size_t huge = size_t{2} << 20;
  void* const memory =
      mmap(nullptr, bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  auto* const aligned = reinterpret_cast<unsigned char*>(
      (reinterpret_cast<uintptr_t>(memory) + huge - 1) / huge * huge);
  madvise(aligned, bytes, MADV_HUGEPAGE);
  std::memset(aligned, 1, bytes);
  return aligned;
}

double read_seconds(size_t bytes) {
  static const unsigned char* const buffer = big_buffer(largest_read);
  static size_t next = 0;  // somewhere else each time
  bytes = std::min(bytes, largest_read);
  if (next + bytes > largest_read) next = 0;
  const auto* const words = reinterpret_cast<const uint64_t*>(buffer + next);
  next += bytes / 4096 * 4096;
  const unsigned threads = processors();
  return seconds_of(threads, [&](unsigned t) {
    const size_t all = bytes / sizeof(uint64_t), first = all / threads * t / 8 * 8,
                 last = all / threads * (t + 1) / 8 * 8;
    uint64_t sums[8] = {};
    for (size_t i = first; i < last; i += 8) {
      __builtin_prefetch(words + i + 512);
      for (size_t j = 0; j < 8; j++) sums[j] += words[i + j];
    }
    for (const uint64_t sum : sums) benchmark::DoNotOptimize(sum);
  });
}

double copy_seconds(size_t bytes) {
  static unsigned char* const to = big_buffer(largest_copy);
  static const unsigned char* const from = big_buffer(largest_copy);
  const unsigned threads = processors();
  const size_t share = std::min(bytes, largest_copy) / threads;
  return seconds_of(threads,
                    [&](unsigned t) { std::memcpy(to + t * share, from + t * share, share); });
}

double fma_rate() {
  constexpr size_t rounds = 3'000'000;
  const Units widest = units();
  const unsigned threads = processors();
  return 2.0 * 12 * widest.lanes * rounds * threads /
         seconds_of(threads, [&](unsigned) { widest.run(rounds); });
}

}  // namespace pkv::bench
