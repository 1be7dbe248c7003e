// Measures what choosing blocks saves if K and V are in a file: decode steps read some of the
// blocks or all, with the file's pages in memory or dropped before each step. The file is created
// in the working directory.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "fixture.h"

namespace pkv::bench {

namespace {

// Returns the address of the cache's K and V.
void* begin_of(pkv_cache cache) {
  auto view = made<pkv_kv_view>();
  check(pkv_cache_get_kv_view(cache, 0, &view));
  return const_cast<void*>(view.k);
}

// Returns the bytes that were read from devices for this process.
double bytes_read() {
  std::FILE* const file = std::fopen("/proc/self/io", "r");
  if (file == nullptr) return 0;
  char line[128];
  unsigned long long bytes = 0;
  while (std::fgets(line, sizeof line, file) != nullptr)
    if (std::sscanf(line, "read_bytes: %llu", &bytes) == 1) break;
  std::fclose(file);
  return static_cast<double>(bytes);
}

// One of `part` blocks is read.
void slow_tier(benchmark::State& state, const Geometry& geometry, uint32_t part, bool dropped) {
  Filled filled(geometry);
  void* const memory = begin_of(filled.cache());
  const size_t size = geometry.total_bytes();
  Step step(geometry, filled, 1);
  const pkv_chosen_blocks chosen = chosen_part(geometry, part);
  auto params = made<pkv_attention_params>();
  if (part > 1) params.chosen_blocks = &chosen;
  step.attend(&params);  // computes the bounds
  if (dropped && msync(memory, size, MS_SYNC) != 0)
    return state.SkipWithError(std::strerror(errno));
  double bytes = 0;
  for (auto _ : state) {
    if (dropped && madvise(memory, size, MADV_PAGEOUT) != 0)
      return state.SkipWithError(std::strerror(errno));
    const double before = bytes_read();
    state.SetIterationTime(seconds_of([&] { step.attend(&params); }));
    bytes += bytes_read() - before;
  }
  state.counters["MB_read"] = bytes / 1e6 / rounds(state);
  state.counters["MB_of_KV"] = static_cast<double>(geometry.kv_bytes()) / 1e6;
}

}  // namespace

void register_slow_tier() {
  for (const uint32_t block_size : {32u, 64u, 128u}) {
    if (short_run() && block_size != 64) continue;
    for (const uint32_t part : {1u, 8u, 32u})
      for (const char* const where : {"memory", "cached", "dropped"}) {
        const bool dropped = std::strcmp(where, "dropped") == 0;
        if (short_run() && dropped) continue;
        const Geometry geometry{
            .sessions = 1,
            .tokens = 32768,
            .block_size = block_size,
            .memory_directory = std::strcmp(where, "memory") == 0 ? nullptr : "."};
        add_manual(std::string("slow_tier/") + where + "/block" + std::to_string(block_size) +
                       "/part" + std::to_string(part),
                   slow_tier, geometry, part, dropped);
      }
  }
}

}  // namespace pkv::bench
