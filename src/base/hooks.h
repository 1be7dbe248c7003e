// Checks of the hooks and the thread count in a config.
#pragma once

#include <pagedkv/common.h>

namespace pkv {

inline constexpr uint32_t max_threads = 4096;

// Throws INVALID_ARGUMENT if the allocator lacks a function. It may be NULL.
void check_allocator(const pkv_allocator* allocator);

// Throws INVALID_ARGUMENT if the runner lacks its function, has no or too many threads, or comes
// with a thread count other than 0. It may be NULL.
void check_runner(const pkv_runner* runner, uint32_t threads);

// Throws INVALID_ARGUMENT for more threads than the limit.
void check_threads(uint32_t threads);

// The number of threads that a config asks for: the runner's, or `threads`, or one per CPU if that
// is 0.
uint32_t count_threads(const pkv_runner* runner, uint32_t threads);

}  // namespace pkv
