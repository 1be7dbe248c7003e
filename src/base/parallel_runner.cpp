// Workers on a caller's runner (pkv_runner). No exception passes through the caller's stack frames:
// the first one is kept and thrown again when the runner has returned.
#include <algorithm>
#include <array>
#include <atomic>
#include <exception>

#include "base/memory.h"
#include "base/parallel.h"
#include "base/status.h"

namespace pkv {

namespace {

// The tasks of one call of the runner. A bit per task says that it was begun, so that a task does
// not run twice, perhaps at the same time, if a faulty runner asks for it twice. The bits lie on
// the stack: memory that is refused in the middle of a step would leave half of the step undone.
struct RunnerCall {
  static constexpr size_t max_tasks = 4096;

  TaskFunction task;
  const void* context;
  size_t first, n;  // tasks [first, first + n); the runner counts from 0
  unsigned threads;
  std::array<std::atomic<uint64_t>, max_tasks / 64> begun{};
  std::atomic<size_t> done{0};
  std::atomic<bool> misused{false};  // the runner asked for a task that it must not run
  std::atomic_flag failed{};
  std::exception_ptr error{};

  void run(size_t i, unsigned worker) noexcept {
    if (i >= n || worker >= threads || !begin(i)) {
      misused.store(true, std::memory_order_relaxed);
      return;
    }
    try {
      task(context, first + i, worker);
    } catch (...) {
      if (!failed.test_and_set()) error = std::current_exception();
    }
    done.fetch_add(1);
  }

  // Marks a task as begun. Returns false if it was begun before.
  bool begin(size_t i) noexcept {
    const uint64_t bit = uint64_t{1} << i % 64;
    return (begun[i / 64].fetch_or(bit, std::memory_order_relaxed) & bit) == 0;
  }
};

}  // namespace

void Workers::run_by_caller(size_t n, TaskFunction task, const void* context) const {
  for (size_t first = 0; first < n; first += RunnerCall::max_tasks) {
    RunnerCall call{task, context, first, std::min(n - first, RunnerCall::max_tasks), threads_};
    {
      HookScope scope;
      runner_.run(
          runner_.user, call.n,
          [](void* self, size_t i, uint32_t worker) {
            static_cast<RunnerCall*>(self)->run(i, worker);
          },
          &call);
    }
    if (call.error) std::rethrow_exception(call.error);
    if (call.done != call.n || call.misused)
      fail(PKV_INVALID_ARGUMENT, "the runner ran %zu tasks of %zu%s", call.done.load(), call.n,
           call.misused ? ", and asked for one twice, for one that there is not, or on a worker "
                          "that there is not"
                        : "");
  }
}

}  // namespace pkv
