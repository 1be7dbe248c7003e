// Tasks that run on the threads of Workers while the thread that made them does something else.
// They have their own file since only saving and loading files use them; other code waits for its
// tasks.
#pragma once

#include <cstddef>
#include <memory>

#include "base/parallel.h"
#include "base/task_list.h"

namespace pkv {

// The thread that makes these tasks may block, for example in a read from a pipe. The tasks
// themselves compute and never block, so they do not keep the arena's threads waiting. Where no
// other thread can help, finish() runs all of them on the calling thread: with one thread, with a
// caller's runner (which returns only when everything is done), or without memory for the list.
class BackgroundTasks {
 public:
  // Begins task(i) for every i in [0, n). `task` must live until finish() or the end of this
  // object.
  template <class Task>
  BackgroundTasks(Workers& workers, size_t n, const Task& task)
      : BackgroundTasks(
            workers, n,
            [](void* context, size_t i, uint32_t) { (*static_cast<const Task*>(context))(i); },
            const_cast<Task*>(&task)) {}
  // Waits for the tasks that were begun, and never begins the others.
  ~BackgroundTasks();
  BackgroundTasks(const BackgroundTasks&) = delete;
  BackgroundTasks& operator=(const BackgroundTasks&) = delete;

  // Helps with the remaining tasks and waits until all are done. Rethrows the exception of the
  // first task that failed.
  void finish();

 private:
  BackgroundTasks(Workers& workers, size_t n, TaskFunction task, void* context) noexcept;

  Workers& workers_;
  const size_t n_;
  const TaskFunction task_;
  void* const context_;
  // Shared, because a thread of the arena may still look for a task when this object is gone; it
  // then finds none to begin. NULL if no other thread helps.
  std::shared_ptr<TaskList> tasks_;
};

}  // namespace pkv
