// Workers on a caller's runner. No exception passes through the caller's frames: the first one
// waits until all tasks are done.
#include <algorithm>
#include <array>
#include <atomic>
#include <exception>

#include "base/memory.h"
#include "base/parallel.h"
#include "base/status.h"

namespace pkv {

namespace {

// Tasks of one call of the runner. A bit for each says that it was begun: a task that the runner
// asks for a second time would write beside the first one, so it does not run. The bits lie on the
// stack, because memory that is refused in the middle of a step would leave half of it undone.
struct Errand {
  static constexpr size_t most = 4096;

  void (*task)(const void*, size_t, unsigned);
  const void* context;
  size_t first, n;  // tasks [first, first + n); the runner counts from 0
  unsigned threads;
  std::array<std::atomic<uint64_t>, most / 64> begun{};
  std::atomic<size_t> done{0};
  std::atomic<bool> erred{false};
  std::atomic_flag failed{};
  std::exception_ptr error{};

  void run(size_t i, unsigned worker) noexcept {
    if (i >= n || worker >= threads || !begin(i)) {
      erred.store(true, std::memory_order_relaxed);
      return;
    }
    try {
      task(context, first + i, worker);
    } catch (...) {
      if (!failed.test_and_set()) error = std::current_exception();
    }
    done.fetch_add(1);
  }

  // False where the task was begun before.
  bool begin(size_t i) noexcept {
    const uint64_t bit = uint64_t{1} << i % 64;
    return (begun[i / 64].fetch_or(bit, std::memory_order_relaxed) & bit) == 0;
  }
};

}  // namespace

void Workers::run_by_caller(size_t n, Call task, const void* context) const {
  for (size_t first = 0; first < n; first += Errand::most) {
    Errand errand{task, context, first, std::min(n - first, Errand::most), threads_};
    {
      HookScope scope;
      runner_.run(
          runner_.user, errand.n,
          [](void* self, size_t i, uint32_t worker) { static_cast<Errand*>(self)->run(i, worker); },
          &errand);
    }
    if (errand.error) std::rethrow_exception(errand.error);
    if (errand.done != errand.n || errand.erred)
      fail(PKV_INVALID_ARGUMENT, "the runner ran %zu tasks of %zu%s", errand.done.load(), errand.n,
           errand.erred ? ", and asked for one twice, for one that there is not, or on a worker "
                          "that there is not"
                        : "");
  }
}

}  // namespace pkv
