// Tasks that several threads take from one list: see Beside in parallel.h.
#pragma once

#include "base/parallel.h"

namespace pkv {

struct Workers::Tasks {
  // Runs tasks that nobody has begun yet, until there are none.
  void work() noexcept;
  // No more tasks are begun; returns when those that were begun are done.
  void stop() noexcept;

  const Call task;
  const void* const context;
  const size_t n;
  std::atomic<size_t> next{0}, done{0};
  std::atomic_flag failed{};
  std::exception_ptr error{};  // of the first task that failed
};

}  // namespace pkv
