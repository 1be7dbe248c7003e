// Runners that are functions of a test.
#pragma once

#include <pagedkv/pagedkv.h>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace cache_test {

using Task = void (*)(void* context, size_t i, uint32_t worker);
using Spread = std::function<void(size_t n, Task task, void* context)>;

// Returns a runner that calls `run`, which must outlive it.
inline pkv_runner runner_of(Spread& run, uint32_t threads) {
  return {[](void* user, size_t n, Task task, void* context) {
            (*static_cast<Spread*>(user))(n, task, context);
          },
          &run, threads, 0};
}

}  // namespace cache_test
