// Finds the OpenMP library that the process has loaded, and runs tasks on its threads. libgomp,
// libomp and libiomp5 all have the function that GCC calls for a parallel region. It is looked up
// at run time, so that this library depends on none of them.
#include "base/openmp_runner.h"

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/hooks.h"
#include "base/os.h"
#include "base/status.h"
#include "base/task_list.h"

namespace pkv {

namespace {

using Parallel = void (*)(void (*work)(void* data), void* data, unsigned threads, unsigned flags);
using MaxThreads = int (*)();

template <class Function>
Function find(const char* name) {
  return reinterpret_cast<Function>(os::find_function(name));
}

struct Region {
  TaskList tasks;
  uint32_t threads;
  std::atomic<uint32_t> workers{0};

  void work() {
    const uint32_t worker = workers.fetch_add(1, std::memory_order_relaxed);
    if (worker < threads) tasks.work(worker);
  }
};

// All runners share it: once found, the library stays loaded.
constinit std::atomic<Parallel> parallel{nullptr};

constinit os::FirstProcess openmp_user;

// `user` is the number of threads. A forked child has none of them: libgomp would wait for them.
void run(void* user, size_t n, TaskFunction task, void* context) {
  Region region{{task, context, n}, static_cast<uint32_t>(reinterpret_cast<uintptr_t>(user))};
  if (n == 1 || !openmp_user.claim())
    region.work();
  else
    parallel.load(std::memory_order_relaxed)([](void* data) { static_cast<Region*>(data)->work(); },
                                             &region, region.threads, 0);
  region.tasks.rethrow();
}

}  // namespace

pkv_runner openmp_runner() {
  const auto found = find<Parallel>("GOMP_parallel");
  const auto count = find<MaxThreads>("omp_get_max_threads");
  if (found == nullptr || count == nullptr)
    fail(PKV_UNSUPPORTED, "this process has loaded no OpenMP library: there is no %s in it",
         found == nullptr ? "GOMP_parallel" : "omp_get_max_threads");
  parallel.store(found, std::memory_order_relaxed);
  const uint32_t threads = std::clamp<uint32_t>(static_cast<uint32_t>(count()), 1, max_threads);
  return {run, reinterpret_cast<void*>(uintptr_t{threads}), threads, 0};
}

}  // namespace pkv
