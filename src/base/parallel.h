// The only door to oneTBB: an arena with a fixed number of threads.
#pragma once

#include <cstddef>
#include <memory>

namespace pkv {

class Workers {
 public:
  explicit Workers(unsigned threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  unsigned threads() const { return threads_; }

  // Calls task(i) for every i in [0, n), on the caller and on the arena's threads. Which thread runs which i is not
  // defined: tasks write to places of their own. The first exception a task throws comes out here.
  template <class Task>
  void for_each(size_t n, const Task& task) {
    run(n, [](const void* context, size_t i) { (*static_cast<const Task*>(context))(i); }, &task);
  }

 private:
  void run(size_t n, void (*task)(const void*, size_t), const void* context);

  struct Arena;
  const unsigned threads_;
  std::unique_ptr<Arena> arena_;
};

// All processors, made at first use and never destroyed: for calls that belong to no cache.
Workers& default_workers();

}  // namespace pkv
