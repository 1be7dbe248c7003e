// How threads take tasks from a list and wait for each other.
#include "base/task_list.h"

#include <algorithm>

namespace pkv {

void TaskList::work() noexcept {
  for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) {
    try {
      task(context, i, 0);
    } catch (...) {
      if (!failed.test_and_set()) error = std::current_exception();
    }
    // Release: a thread that sees this task counted as done also sees what the task wrote.
    done.fetch_add(1, std::memory_order_release);
    done.notify_all();
  }
}

void TaskList::stop() noexcept {
  const size_t begun = std::min(next.exchange(n, std::memory_order_relaxed), n);
  for (size_t seen; (seen = done.load(std::memory_order_acquire)) < begun;)
    done.wait(seen, std::memory_order_acquire);
}

}  // namespace pkv
