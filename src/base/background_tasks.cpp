// How a list of tasks is shared with the arena's threads, finished and abandoned.
#include "base/background_tasks.h"

#include <new>

namespace pkv {

BackgroundTasks::BackgroundTasks(Workers& workers, size_t n, TaskFunction task,
                                 void* context) noexcept
    : workers_(workers), n_(n), task_(task), context_(context) {
  if (workers.runner_.run != nullptr || workers.threads() == 1 || n == 0) return;
  try {
    tasks_.reset(new TaskList{task, context, n});
    workers.lend_threads(tasks_);
  } catch (const std::bad_alloc&) {
    // Without a list, finish() runs the tasks.
  }
}

BackgroundTasks::~BackgroundTasks() {
  if (!tasks_) return;
  workers_.take_back(tasks_);
  tasks_->cancelled.store(true, std::memory_order_relaxed);
  tasks_->work(0);
  tasks_->wait();
  // Frees the exception on this thread; a thread that still shares the list must not do it later.
  tasks_->error = nullptr;
}

void BackgroundTasks::finish() {
  if (!tasks_) return workers_.run(n_, task_, context_);
  tasks_->work(0);
  tasks_->wait();
  tasks_->rethrow();
}

}  // namespace pkv
