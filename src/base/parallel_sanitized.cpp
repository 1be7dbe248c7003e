// Workers without oneTBB, in the place of parallel.cpp under ThreadSanitizer.
#include <algorithm>
#include <thread>

#include "base/made_once.h"
#include "base/os.h"
#include "base/parallel_tasks.h"

namespace pkv {

struct Workers::Arena {};

Workers::Workers(unsigned threads, const pkv_runner& runner) : runner_(runner), threads_(threads) {}

Workers::~Workers() = default;

void Workers::run(size_t n, Call task, const void* context) {
  if (runner_.run != nullptr && n > 1) return run_by_caller(n, task, context);
  run_on_new_threads(n, task, context);
}

void Workers::help(const std::shared_ptr<Tasks>& tasks) noexcept {
  if (runner_.run != nullptr) return;
  try {
    for (size_t i = 1; i < std::min<size_t>(threads_, tasks->n + 1); i++)
      std::thread([tasks] { tasks->work(); }).detach();
  } catch (...) {
    // No thread: whoever waits for the tasks runs them.
  }
}

Workers& default_workers() {
  static constinit std::atomic<Workers*> place{nullptr};
  return made_once(place, [] { return std::make_unique<Workers>(os::processor_count()); });
}

}  // namespace pkv
