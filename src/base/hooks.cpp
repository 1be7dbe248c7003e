// Checks of hooks and thread counts, which are the same for every config that has them.
#include "base/hooks.h"

#include <algorithm>

#include "base/os.h"
#include "base/status.h"

namespace pkv {

void check_allocator(const pkv_allocator* allocator) {
  if (allocator != nullptr && (allocator->alloc == nullptr || allocator->free == nullptr))
    fail(PKV_INVALID_ARGUMENT, "the allocator lacks its %s function",
         allocator->alloc == nullptr ? "alloc" : "free");
}

void check_runner(const pkv_runner* runner, uint32_t threads) {
  if (runner == nullptr) return;
  if (runner->run == nullptr) fail(PKV_INVALID_ARGUMENT, "the runner lacks its run function");
  if (runner->threads == 0 || runner->threads > max_threads)
    fail(PKV_INVALID_ARGUMENT, "the runner has %u threads; it must have 1 to %u", runner->threads,
         max_threads);
  if (runner->reserved != 0)
    fail(PKV_INVALID_ARGUMENT, "runner: reserved is %u, not 0", runner->reserved);
  if (threads != 0)
    fail(PKV_INVALID_ARGUMENT, "threads is %u, but the runner has its own %u", threads,
         runner->threads);
}

void check_threads(uint32_t threads) {
  if (threads > max_threads)
    fail(PKV_INVALID_ARGUMENT, "threads is %u; it must be at most %u", threads, max_threads);
}

uint32_t count_threads(const pkv_runner* runner, uint32_t threads) {
  if (runner != nullptr) return runner->threads;
  return threads != 0 ? threads : std::min(os::fast_processor_count(), max_threads);
}

}  // namespace pkv
