// Workers on plain threads, in the place of parallel.cpp under ThreadSanitizer: oneTBB comes without instrumentation, and the
// way it hands tasks over looks like data races there.
#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/os.h"

namespace pkv {

struct Workers::Arena {};

Workers::Workers(unsigned threads, const pkv_runner& runner) : runner_(runner), threads_(threads) {}

Workers::~Workers() = default;

void Workers::run(size_t n, Call task, const void* context) {
  if (runner_.run != nullptr && n > 1) return run_by_caller(n, task, context);
  std::atomic<size_t> next{0};
  std::once_flag failed;
  std::exception_ptr error;
  // Relaxed: that one task begins after another must not order what they do, or a race between them would go unseen.
  const auto work = [&](unsigned worker) {
    for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) {
      try {
        task(context, i, worker);
      } catch (...) {
        std::call_once(failed, [&] { error = std::current_exception(); });
        next.store(n, std::memory_order_relaxed);
      }
    }
  };
  std::vector<std::jthread> threads;
  for (unsigned worker = 1; worker < std::min<size_t>(threads_, n); worker++) threads.emplace_back(work, worker);
  work(0);
  threads.clear();
  if (error) std::rethrow_exception(error);
}

Workers& default_workers() {
  static Workers* const workers = new Workers(os::processor_count());
  return *workers;
}

}  // namespace pkv
