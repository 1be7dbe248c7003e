// The library's threads: an arena (threads of oneTBB or of the library) of a fixed size, or the
// caller's runner. All parallel code uses this header; no room except base uses oneTBB.
#pragma once

#include <pagedkv/common.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/float_environment.h"
#include "base/os.h"
#include "base/task_list.h"

namespace pkv {

class Logger;

class Workers {
 public:
  class Arena;

  explicit Workers(unsigned threads) : Workers(threads, {}) {}
  // Uses the runner's threads, or an arena if runner.run is NULL. The logger, which may be NULL, is
  // told if the system refuses threads; it outlives the object.
  Workers(unsigned threads, const pkv_runner& runner, const Logger* logger = nullptr);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  unsigned threads() const { return threads_; }

  // Calls task(i, worker) for every i in [0, n), on the calling thread and on other threads, and
  // returns when all tasks are done. Tasks run in the default floating-point environment. `worker`
  // is below threads(), and tasks of one call that run at the same time have different workers. Any
  // worker may run any task, so each task must write to a place of its own.
  template <class Task>
  void for_each(size_t n, const Task& task) {
    run(
        n,
        [](void* context, size_t i, uint32_t worker) {
          const DefaultFloatEnvironment float_environment;
          (*static_cast<const Task*>(context))(i, worker);
        },
        const_cast<Task*>(&task));
  }

 private:
  friend class BackgroundTasks;
  void run(size_t n, TaskFunction task, void* context);
  // Lets idle threads of the arena work on the tasks. Returns at once.
  void lend_threads(const std::shared_ptr<TaskList>& tasks) noexcept;
  // Gives up the arena's share of the list. A thread that works on it keeps its own until it ends.
  void take_back(const std::shared_ptr<TaskList>& tasks) noexcept;

  static unsigned limit_threads(unsigned threads);
  static std::unique_ptr<Arena> make_arena(unsigned threads, const Logger* logger);

  const pkv_runner runner_;
  const unsigned threads_;
  std::unique_ptr<Arena> arena_;
};

// Threads that are kept between calls. A build has one of two implementations: parallel_tbb.cpp
// uses oneTBB's threads if it can, parallel_own.cpp always those of parallel_pool.h.
class Workers::Arena {
 public:
  virtual ~Arena() = default;
  // Returns when all tasks have ended.
  virtual void run(TaskList& tasks) = 0;
  virtual void lend_threads(const std::shared_ptr<TaskList>& tasks) = 0;
  virtual void take_back(const std::shared_ptr<TaskList>& tasks) noexcept = 0;

  // Returns false in a forked child, which does not have the threads of its parent.
  bool has_its_threads() const { return epoch_ == os::fork_epoch(); }

 private:
  const uint64_t epoch_ = os::fork_epoch();
};

}  // namespace pkv
