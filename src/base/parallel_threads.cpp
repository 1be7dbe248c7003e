// Workers on plain threads that begin and end with each call. They serve a forked child, which has
// none of the threads that its parent began.
#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/parallel.h"

namespace pkv {

namespace {

// One call of Workers::run(): its tasks, which the threads of the call take in turn. After a task
// failed no further one is begun.
class ParallelCall {
 public:
  ParallelCall(size_t n, TaskFunction task, const void* context)
      : n_(n), task_(task), context_(context) {}

  void run(unsigned worker) noexcept {
    // Relaxed: taking a task must not order it after the tasks taken before, or ThreadSanitizer
    // would not see a race between them.
    for (size_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < n_;) {
      try {
        task_(context_, i, worker);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
        next_.store(n_, std::memory_order_relaxed);
      }
    }
  }

  // Rethrows what the first task to fail threw. Call it when all threads have ended.
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  const size_t n_;
  const TaskFunction task_;
  const void* const context_;
  std::atomic<size_t> next_{0};
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace

void Workers::run_on_new_threads(size_t n, TaskFunction task, const void* context) const {
  ParallelCall call(n, task, context);
  std::vector<std::thread> threads;
  try {
    for (unsigned worker = 1; worker < std::min<size_t>(threads_, n); worker++)
      threads.emplace_back([&call, worker] { call.run(worker); });
  } catch (const std::system_error&) {
    // The system gives no more threads: those that began do all the work.
  } catch (const std::bad_alloc&) {
  }
  call.run(0);
  for (std::thread& thread : threads) thread.join();
  call.rethrow();
}

}  // namespace pkv
