#include "base/parallel_tasks.h"

#include <algorithm>

namespace pkv {

void Workers::Tasks::work() noexcept {
  for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) {
    try {
      task(context, i, 0);
    } catch (...) {
      if (!failed.test_and_set()) error = std::current_exception();
    }
    // Release: who sees that the task is done sees what it did.
    done.fetch_add(1, std::memory_order_release);
    done.notify_all();
  }
}

void Workers::Tasks::stop() noexcept {
  const size_t begun = std::min(next.exchange(n, std::memory_order_relaxed), n);
  for (size_t seen; (seen = done.load(std::memory_order_acquire)) < begun;) done.wait(seen, std::memory_order_acquire);
}

Beside::Beside(Workers& workers, size_t n, Workers::Call task, const void* context)
    : workers_(workers), tasks_(new Workers::Tasks{task, context, n}) {
  if (n > 0) workers.help(tasks_);
}

Beside::~Beside() { tasks_->stop(); }

void Beside::finish() {
  // A caller's runner does all of them: nobody helped.
  if (workers_.runner_.run != nullptr && tasks_->next.exchange(tasks_->n, std::memory_order_relaxed) == 0) {
    tasks_->done.store(tasks_->n, std::memory_order_relaxed);
    workers_.run(tasks_->n, tasks_->task, tasks_->context);
    return;
  }
  tasks_->work();
  tasks_->stop();
  if (tasks_->error) std::rethrow_exception(tasks_->error);
}

}  // namespace pkv
