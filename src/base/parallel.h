// The only door to threads: an arena of oneTBB's with a fixed number of them, or a caller's runner.
#pragma once

#include <pagedkv/common.h>

#include <cstddef>
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

  // Calls task(i, worker) for every i in [0, n), on the caller and on the arena's threads. No two tasks of one call run at once with the
  // same worker, a number below threads(). Which worker runs which i is not defined: tasks write to places of their own.
  template <class Task>
  void for_each(size_t n, const Task& task) {
    run(n, [](const void* context, size_t i, unsigned worker) { (*static_cast<const Task*>(context))(i, worker); }, &task);
  }

 private:
  using Call = void (*)(const void*, size_t, unsigned);
  void run(size_t n, Call task, const void* context);
  void run_by_caller(size_t n, Call task, const void* context) const;
  void run_on_new_threads(size_t n, Call task, const void* context) const;

  struct Arena;
  const pkv_runner runner_;
  const unsigned threads_;
  std::unique_ptr<Arena> arena_;
};

// All processors, made at first use and never destroyed: for calls that belong to no cache.
Workers& default_workers();

}  // namespace pkv
