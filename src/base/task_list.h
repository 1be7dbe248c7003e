// The tasks of one call, and the loop in which a thread takes the next one. Each driver of Workers
// only brings threads to this loop, or indices of tasks to run().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>

namespace pkv {

// Runs task `index` of a call. `worker` is the number of the thread that runs it. The type is the
// one that a pkv_runner is given.
using TaskFunction = void (*)(void* context, size_t index, uint32_t worker);

struct TaskList {
  // Takes and runs tasks until all are taken, by this thread or by others.
  void work(uint32_t worker) noexcept;
  // Runs one task, unless the list is cancelled. The first task to fail cancels it.
  void run(size_t index, uint32_t worker) noexcept;
  // Waits until all tasks that threads took in work() have ended. Call it after work().
  void wait() const noexcept;
  // Throws again what the first task to fail threw. Call it when no thread runs a task.
  void rethrow();

  bool has_tasks() const noexcept { return next.load(std::memory_order_relaxed) < n; }

  const TaskFunction task;
  void* const context;
  const size_t n;
  std::atomic<size_t> next{0}, done{0};  // tasks that were taken; of these, the ones that ended
  std::atomic<bool> cancelled{false};    // tasks that are not begun yet are taken, but not run
  std::exception_ptr error{};
};

}  // namespace pkv
