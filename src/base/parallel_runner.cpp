// Workers on a caller's runner. No exception passes through the caller's frames: the first one waits until all tasks are done.
#include <atomic>
#include <exception>

#include "base/memory.h"
#include "base/parallel.h"
#include "base/status.h"

namespace pkv {

namespace {

struct Errand {
  void (*task)(const void*, size_t, unsigned);
  const void* context;
  size_t n;
  unsigned threads;
  std::atomic<size_t> done{0};
  std::atomic_flag failed{};
  std::exception_ptr error{};

  void run(size_t i, unsigned worker) noexcept {
    if (i >= n || worker >= threads) return;  // and the count will not be met
    try {
      task(context, i, worker);
    } catch (...) {
      if (!failed.test_and_set()) error = std::current_exception();
    }
    done.fetch_add(1);
  }
};

}  // namespace

void Workers::run_by_caller(size_t n, Call task, const void* context) const {
  Errand errand{task, context, n, threads_};
  {
    HookScope scope;
    runner_.run(runner_.user, n, [](void* self, size_t i, uint32_t worker) { static_cast<Errand*>(self)->run(i, worker); }, &errand);
  }
  if (errand.error) std::rethrow_exception(errand.error);
  if (errand.done != n) fail(PKV_INVALID_ARGUMENT, "the runner ran %zu tasks of %zu", errand.done.load(), n);
}

}  // namespace pkv
