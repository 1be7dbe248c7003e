// Workers without oneTBB: this file replaces parallel.cpp in a build for ThreadSanitizer.
#include <algorithm>
#include <atomic>
#include <thread>

#include "base/parallel.h"

namespace pkv {

struct Workers::Arena {};

Workers::Workers(unsigned threads, const pkv_runner& runner) : runner_(runner), threads_(threads) {}

Workers::~Workers() = default;

void Workers::run(size_t n, TaskFunction task, const void* context) {
  if (runner_.run != nullptr && n > 1) return run_by_caller(n, task, context);
  run_on_new_threads(n, task, context);
}

void Workers::lend_threads(const std::shared_ptr<TaskList>& tasks) noexcept {
  if (runner_.run != nullptr) return;
  try {
    for (size_t i = 1; i < std::min<size_t>(threads_, tasks->n + 1); i++)
      std::thread([tasks] { tasks->work(); }).detach();
  } catch (...) {
    // The system gave no thread: the thread that waits for the tasks runs them.
  }
}

}  // namespace pkv
