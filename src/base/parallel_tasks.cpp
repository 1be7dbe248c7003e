#include "base/parallel_tasks.h"

#include <algorithm>
#include <new>
#include <utility>

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
  for (size_t seen; (seen = done.load(std::memory_order_acquire)) < begun;)
    done.wait(seen, std::memory_order_acquire);
}

Beside::Beside(Workers& workers, size_t n, Workers::Call task, const void* context) noexcept
    : workers_(workers), n_(n), task_(task), context_(context) {
  if (workers.runner_.run != nullptr || workers.threads() == 1 || n == 0) return;
  try {
    tasks_.reset(new Workers::Tasks{task, context, n});
    workers.help(tasks_);
  } catch (const std::bad_alloc&) {
  }
}

Beside::~Beside() {
  if (!tasks_) return;
  tasks_->stop();
  tasks_->error = nullptr;  // here, and not by a thread that comes too late
}

void Beside::finish() {
  if (!tasks_) return workers_.run(n_, task_, context_);
  tasks_->work();
  tasks_->stop();
  if (tasks_->error) std::rethrow_exception(std::exchange(tasks_->error, nullptr));
}

}  // namespace pkv
