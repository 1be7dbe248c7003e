// A list of tasks that several threads work through, each taking the next task that nobody has
// begun. Workers lends threads to it and BackgroundTasks owns it; it is a file of its own so that
// neither of these two has to know how the other is made.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>

namespace pkv {

// Runs task `index` of a call. `worker` is the number of the thread that runs it.
using TaskFunction = void (*)(const void* context, size_t index, unsigned worker);

struct TaskList {
  // Runs tasks until all of them have been begun, by this thread or by others.
  void work() noexcept;
  // Keeps tasks that nobody has begun from being begun, and waits for the others to end.
  void stop() noexcept;

  const TaskFunction task;
  const void* const context;
  const size_t n;
  std::atomic<size_t> next{0}, done{0};
  std::atomic_flag failed{};
  std::exception_ptr error{};  // what the first task to fail threw
};

}  // namespace pkv
