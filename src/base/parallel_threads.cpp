// Workers on plain threads that begin and end with each call: where the library is built for
// ThreadSanitizer (oneTBB comes without instrumentation, and the way it hands tasks over looks like
// data races there), and in a forked child whose parent had oneTBB's threads.
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

class Errand {
 public:
  using Call = void (*)(const void*, size_t, unsigned);
  Errand(size_t n, Call task, const void* context) : n_(n), task_(task), context_(context) {}

  void run(unsigned worker) noexcept {
    // Relaxed: that one task begins after another must not order what they do, or a race between
    // them would go unseen.
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

  // After all threads have ended.
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  const size_t n_;
  const Call task_;
  const void* const context_;
  std::atomic<size_t> next_{0};
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace

void Workers::run_on_new_threads(size_t n, Call task, const void* context) const {
  Errand errand(n, task, context);
  {
    std::vector<std::jthread> threads;
    try {
      for (unsigned worker = 1; worker < std::min<size_t>(threads_, n); worker++)
        threads.emplace_back([&errand, worker] { errand.run(worker); });
    } catch (const std::system_error&) {
      // The system gives no more threads: those that there are do all of it.
    } catch (const std::bad_alloc&) {
    }
    errand.run(0);
  }
  errand.rethrow();
}

}  // namespace pkv
