// The library's threads: a oneTBB arena with a fixed number of threads, or the caller's own runner.
// Everything that runs in parallel goes through this header; no other room uses oneTBB.
#pragma once

#include <pagedkv/common.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/float_environment.h"
#include "base/os.h"
#include "base/task_list.h"

namespace pkv {

class Workers {
 public:
  class Arena;

  explicit Workers(unsigned threads) : Workers(threads, {}) {}
  // Uses the arena if runner.run is NULL.
  Workers(unsigned threads, const pkv_runner& runner);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  unsigned threads() const { return threads_; }

  // Calls task(i, worker) for every i in [0, n), on the calling thread and on the arena's threads,
  // and returns when all tasks are done. Tasks run in the default floating-point environment.
  // `worker` is below threads(), and no two tasks of one call run at once with the same worker.
  // Which worker runs which task is not defined, so tasks write to separate places.
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
  // Lets free threads of the arena work through the tasks. Returns at once.
  void lend_threads(const std::shared_ptr<TaskList>& tasks) noexcept;

  static unsigned limit_threads(unsigned threads);
  static std::unique_ptr<Arena> make_arena(unsigned threads);

  const pkv_runner runner_;
  const unsigned threads_;
  std::unique_ptr<Arena> arena_;
};

// Threads that are kept between calls: parallel_tbb.cpp uses oneTBB's, parallel_pool.cpp the
// library's own. A build has one of the two files.
class Workers::Arena {
 public:
  virtual ~Arena() = default;
  // Returns when all tasks have ended.
  virtual void run(TaskList& tasks) = 0;
  virtual void lend_threads(const std::shared_ptr<TaskList>& tasks) = 0;

  // A forked child does not have the threads of its parent.
  bool has_its_threads() const { return epoch_ == os::fork_epoch(); }

 private:
  const uint64_t epoch_ = os::fork_epoch();
};

}  // namespace pkv
