// The only door to threads: an arena of oneTBB's with a fixed number of them, or a caller's runner.
#pragma once

#include <pagedkv/common.h>

#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>

namespace pkv {

class Workers {
 public:
  explicit Workers(unsigned threads) : Workers(threads, {}) {}
  Workers(unsigned threads, const pkv_runner& runner);  // runner.run NULL: none
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  unsigned threads() const { return threads_; }

  // Calls task(i, worker) for every i in [0, n), on the caller and on the arena's threads. No two
  // tasks of one call run at once with the same worker, a number below threads(). Which worker runs
  // which i is not defined: tasks write to places of their own.
  template <class Task>
  void for_each(size_t n, const Task& task) {
    run(
        n,
        [](const void* context, size_t i, unsigned worker) {
          (*static_cast<const Task*>(context))(i, worker);
        },
        &task);
  }

 private:
  friend class Beside;
  using Call = void (*)(const void*, size_t, unsigned);
  void run(size_t n, Call task, const void* context);
  void run_by_caller(size_t n, Call task, const void* context) const;
  void run_on_new_threads(size_t n, Call task, const void* context) const;
  struct Tasks;
  // Threads of the arena, as far as some are free, begin to work through the tasks. Returns at
  // once.
  void help(const std::shared_ptr<Tasks>& tasks) noexcept;

  struct Arena;
  const pkv_runner runner_;
  const unsigned threads_;
  std::unique_ptr<Arena> arena_;
};

// Tasks of an index that run while the thread that made them does something else, which may block:
// a read from a pipe, say. They compute and never block, so no thread of the arena is ever kept
// waiting. Where there are no other threads (one thread, or a caller's runner, which returns only
// when all is done), or no memory for a list of them, finish() runs them all.
class Beside {
 public:
  // task(i) for every i in [0, n); `task` must live until finish() or the end of this object.
  template <class Task>
  Beside(Workers& workers, size_t n, const Task& task)
      : Beside(
            workers, n,
            [](const void* context, size_t i, unsigned) {
              (*static_cast<const Task*>(context))(i);
            },
            &task) {}
  ~Beside();  // waits for the tasks that were begun; the others never are
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

  // Takes part in what is left to do and waits for the rest. Throws what the first task threw that
  // failed.
  void finish();

 private:
  Beside(Workers& workers, size_t n, Workers::Call task, const void* context) noexcept;

  Workers& workers_;
  const size_t n_;
  const Workers::Call task_;
  const void* const context_;
  // Shared with threads that come too late to find a task; NULL: nobody helps.
  std::shared_ptr<Workers::Tasks> tasks_;
};

// All processors, made at first use and never destroyed: for calls that belong to no cache.
Workers& default_workers();

}  // namespace pkv
