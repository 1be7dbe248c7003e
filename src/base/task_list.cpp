// How threads take tasks from a list and wait for each other.
#include "base/task_list.h"

#include <utility>

#include "base/atomic_wait.h"

namespace pkv {

void TaskList::work(uint32_t worker) noexcept {
  size_t taken = 0;
  // Relaxed: taking a task must not order it after the tasks taken before, or ThreadSanitizer would
  // not see a race between them.
  for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n; taken++) run(i, worker);
  if (taken == 0) return;
  // Release: a thread that sees these tasks counted as done also sees what they wrote.
  done.fetch_add(taken, std::memory_order_release);
  wake_waiting(done);
}

void TaskList::run(size_t index, uint32_t worker) noexcept {
  if (cancelled.load(std::memory_order_relaxed)) return;
  try {
    task(context, index, worker);
  } catch (...) {
    if (!cancelled.exchange(true, std::memory_order_relaxed)) error = std::current_exception();
  }
}

void TaskList::wait() const noexcept {
  for (size_t seen; (seen = done.load(std::memory_order_acquire)) < n;)
    wait_for_change(done, seen, std::memory_order_acquire);
}

void TaskList::rethrow() {
  if (error) std::rethrow_exception(std::exchange(error, nullptr));
}

}  // namespace pkv
