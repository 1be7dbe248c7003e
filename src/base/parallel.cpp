// Workers: which threads run the tasks of a call.
#include "base/parallel.h"

namespace pkv {

Workers::Workers(unsigned threads, const pkv_runner& runner)
    : runner_(runner),
      threads_(runner.run == nullptr ? limit_threads(threads) : threads),
      arena_(runner.run == nullptr && threads_ > 1 ? make_arena(threads_) : nullptr) {}

Workers::~Workers() {
  // In a forked child the arena is leaked: its threads do not exist there, and its locks may be
  // held for ever.
  if (arena_ && !arena_->has_its_threads()) arena_.release();
}

void Workers::run(size_t n, TaskFunction task, const void* context) {
  if (runner_.run != nullptr && n > 1) return run_by_caller(n, task, context);
  if (threads_ <= 1 || n <= 1) {
    for (size_t i = 0; i < n; i++) task(context, i, 0);
    return;
  }
  if (!arena_ || !arena_->has_its_threads()) return run_on_new_threads(n, task, context);
  arena_->run(n, task, context);
}

void Workers::lend_threads(const std::shared_ptr<TaskList>& tasks) noexcept {
  if (!arena_ || !arena_->has_its_threads()) return;
  try {
    arena_->lend_threads(tasks);
  } catch (...) {
    // Memory was refused: the thread that waits for the tasks runs them.
  }
}

}  // namespace pkv
