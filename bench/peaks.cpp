#include "peaks.h"

#include <sched.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace pkv::bench {

namespace {

using Clock = std::chrono::steady_clock;

// Makes the compiler assume that the value is used and changed. Google Benchmark has the same
// function, but print-peaks is built without it.
template <class Value>
void keep(Value& value) {
  __asm__ volatile("" : "+m"(value) : : "memory");
}

// Returns the seconds from the first beginning to the last end of some work on each thread. All
// threads begin together, since to start many of them takes longer than some measurements.
template <class Work>
double seconds_of(unsigned threads, const Work& work) {
  std::atomic<unsigned> missing = threads;
  std::vector<Clock::time_point> begins(threads), ends(threads);
  const auto run = [&](unsigned t) {
    missing--;
    while (missing > 0) std::this_thread::yield();
    begins[t] = Clock::now();
    work(t);
    ends[t] = Clock::now();
  };
  std::vector<std::thread> workers;
  for (unsigned t = 1; t < threads; t++) workers.emplace_back(run, t);
  run(0);
  for (std::thread& worker : workers) worker.join();
  const auto begin = *std::min_element(begins.begin(), begins.end());
  return std::chrono::duration<double>(*std::max_element(ends.begin(), ends.end()) - begin).count();
}

#if defined(__x86_64__)
typedef float Wide __attribute__((vector_size(64)));
typedef float Half __attribute__((vector_size(32)));
#endif
typedef float Quad __attribute__((vector_size(16)));

// Twelve chains are enough to hide the latency of a multiply-add.
template <class Vector>
[[gnu::always_inline]] inline void multiply_add(size_t rounds) {
  Vector sum[12];
  for (Vector& vector : sum) vector = Vector{} + 1.0f;
  Vector factor = Vector{} + 1.0000001f, addend = Vector{} + 1e-9f;
  keep(factor);
  for (size_t i = 0; i < rounds; i++) {
#pragma GCC unroll 12
    for (Vector& vector : sum) vector = vector * factor + addend;
  }
  for (Vector& vector : sum) keep(vector);
}

struct Units {
  void (*run)(size_t rounds);
  unsigned lanes;
};

#if defined(__x86_64__)
[[gnu::target("avx512f,avx2,fma")]] void run_wide(size_t rounds) { multiply_add<Wide>(rounds); }
[[gnu::target("avx2,fma")]] void run_half(size_t rounds) { multiply_add<Half>(rounds); }

// Twelve sums, in fixed registers, because a compiler would store them in every round.
#define PKV_SUM(instruction, sum) instruction " %%zmm15, %%zmm15, %%zmm" #sum "\n"
#define PKV_RUN_INSTRUCTION(name, instruction)                                                   \
  void name(size_t rounds) {                                                                     \
    __asm__ volatile("vzeroall\n 1:\n" PKV_SUM(instruction, 0) PKV_SUM(instruction, 1)           \
                         PKV_SUM(instruction, 2) PKV_SUM(instruction, 3) PKV_SUM(instruction, 4) \
                             PKV_SUM(instruction, 5) PKV_SUM(instruction, 6)                     \
                                 PKV_SUM(instruction, 7) PKV_SUM(instruction, 8)                 \
                                     PKV_SUM(instruction, 9) PKV_SUM(instruction, 10)            \
                                         PKV_SUM(instruction, 11) "dec %0\n jnz 1b\n vzeroupper" \
                     : "+r"(rounds)                                                              \
                     :                                                                           \
                     : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",     \
                       "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");    \
  }
PKV_RUN_INSTRUCTION(run_fp16, "vfmadd231ph")
PKV_RUN_INSTRUCTION(run_bf16, "vdpbf16ps")
#undef PKV_RUN_INSTRUCTION
#undef PKV_SUM

// Four tiles of sums hide the latency of a product. All tiles have 16 rows of 64 bytes.
void run_tiles(size_t rounds) {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } const config;
  static_assert(sizeof config == 64);
  __asm__ volatile("ldtilecfg %0" ::"m"(config));
  __asm__ volatile("tilezero %tmm0; tilezero %tmm1; tilezero %tmm2; tilezero %tmm3");
  __asm__ volatile("tilezero %tmm4; tilezero %tmm5; tilezero %tmm6; tilezero %tmm7");
  for (size_t i = 0; i < rounds; i++) {
    __asm__ volatile("tdpbf16ps %tmm6, %tmm4, %tmm0; tdpbf16ps %tmm7, %tmm4, %tmm1");
    __asm__ volatile("tdpbf16ps %tmm6, %tmm5, %tmm2; tdpbf16ps %tmm7, %tmm5, %tmm3");
  }
  __asm__ volatile("tilerelease");
}

// Asks the system to let the process use tile registers, like src/kernels/select.cpp.
bool has_matrix_unit() {
  constexpr unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24;
  constexpr int request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XTILEDATA
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & amx_bf16) != 0 &&
         (d & amx_tile) != 0 && syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}
#endif
void run_quad(size_t rounds) { multiply_add<Quad>(rounds); }

Units units() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {run_wide, 16};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {run_half, 8};
#endif
  return {run_quad, 4};
}

// The operations of a round of multiply_add().
double operations_of(const Units& units) { return 2.0 * 12 * units.lanes; }

// Returns the operations per second; each round of a thread does `operations` of them.
double rate(unsigned threads, void (*run)(size_t), double operations, size_t rounds) {
  return operations * static_cast<double>(rounds) * threads /
         seconds_of(threads, [&](unsigned) { run(rounds); });
}

}  // namespace

unsigned processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<unsigned>(CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

unsigned char* big_buffer(size_t bytes) {
  constexpr size_t huge = size_t{2} << 20;
  void* const memory =
      mmap(nullptr, bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  auto* const aligned = reinterpret_cast<unsigned char*>(
      (reinterpret_cast<uintptr_t>(memory) + huge - 1) / huge * huge);
  madvise(aligned, bytes, MADV_HUGEPAGE);
  // Threads touch pages in turns, so that these lie on all NUMA nodes.
  const unsigned threads = processors();
  seconds_of(threads, [&](unsigned t) {
    for (size_t at = t * huge; at < bytes; at += threads * huge)
      std::memset(aligned + at, 1, std::min(huge, bytes - at));
  });
  return aligned;
}

double read_seconds(size_t bytes, size_t times, unsigned threads) {
  static const unsigned char* const buffer = big_buffer(largest_read);
  bytes = std::min(bytes, largest_read);
  const auto* const words = reinterpret_cast<const uint64_t*>(buffer);
  return seconds_of(threads, [&](unsigned t) {
    const size_t all = bytes / sizeof(uint64_t), first = all / threads * t / 8 * 8,
                 last = all / threads * (t + 1) / 8 * 8;
    uint64_t sums[8] = {};
    for (size_t n = 0; n < times; n++)
      for (size_t i = first; i < last; i += 8) {
        __builtin_prefetch(words + i + 512);
        for (size_t j = 0; j < 8; j++) sums[j] += words[i + j];
      }
    for (uint64_t& sum : sums) keep(sum);
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

double fma_seconds(double operations, unsigned threads) {
  const Units widest = units();
  const double rounds = operations / operations_of(widest) / threads;
  return seconds_of(threads, [&](unsigned) { widest.run(static_cast<size_t>(rounds)); });
}

double fma_rate(unsigned threads) {
  const Units widest = units();
  return rate(threads, widest.run, operations_of(widest), 3'000'000);
}

#if defined(__x86_64__)
double fp16_rate(unsigned threads) {
  if (!__builtin_cpu_supports("avx512fp16")) return 0;
  return rate(threads, run_fp16, 2.0 * 12 * 32, 3'000'000);
}

double bf16_rate(unsigned threads) {
  if (!__builtin_cpu_supports("avx512bf16")) return 0;
  return rate(threads, run_bf16, 2.0 * 12 * 32, 3'000'000);
}

double matrix_unit_rate(unsigned threads) {
  if (!has_matrix_unit()) return 0;
  return rate(threads, run_tiles, 2.0 * 4 * 16 * 16 * 32, 500'000);
}
#else
double fp16_rate(unsigned) { return 0; }
double bf16_rate(unsigned) { return 0; }
double matrix_unit_rate(unsigned) { return 0; }
#endif

}  // namespace pkv::bench
